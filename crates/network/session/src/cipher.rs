//! The cipher of a session.

use ring::aead::{AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use secrets::Secret;

/// How frames are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// AES-256-GCM, the faster one where both processors have instructions for it.
    Aes,
    /// ChaCha20-Poly1305, the faster one where a processor has none: AES without them is slow, or not constant in time.
    ChaCha,
}

impl Cipher {
    /// The cipher that suits this processor.
    pub(crate) fn of_processor() -> Cipher {
        if has_aes() { Cipher::Aes } else { Cipher::ChaCha }
    }

    /// The cipher that suits the processors of two greetings, which say it by [`Cipher::number`].
    pub(crate) fn of_both(one: u8, other: u8) -> Cipher {
        if [one, other] == [Cipher::Aes.number(); 2] { Cipher::Aes } else { Cipher::ChaCha }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Cipher::Aes => 0,
            Cipher::ChaCha => 1,
        }
    }

    /// A key has some hundred bytes.
    pub(crate) fn key(self, secret: &Secret) -> Box<LessSafeKey> {
        let algorithm = match self {
            Cipher::Aes => &AES_256_GCM,
            Cipher::ChaCha => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, secret.bytes());
        Box::new(LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("keys of both ciphers have 32 bytes"))))
    }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_processors_must_have_aes() {
        let (aes, chacha) = (Cipher::Aes.number(), Cipher::ChaCha.number());
        assert_eq!(Cipher::of_both(aes, aes), Cipher::Aes);
        for (one, other) in [(aes, chacha), (chacha, aes), (chacha, chacha), (aes, 7)] {
            assert_eq!(Cipher::of_both(one, other), Cipher::ChaCha);
        }
    }
}
