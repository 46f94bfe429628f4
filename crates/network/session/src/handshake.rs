//! The first bytes of a connection, by which each end proves to the other that it holds the secret of the run.
//!
//! | from the end that | bytes | content |
//! |---|---|---|
//! | connects | 40 | greeting: `plch`, version (2 bytes), service, cipher, nonce (32 bytes) |
//! | listens | 72 | greeting of its own, proof |
//! | connects | 32 | proof |
//!
//! A proof is HMAC-SHA-256 under the secret over its purpose, which names the end that makes it, and both greetings, so
//! over both nonces. The end that listens shows the first one: whoever has taken the port of another process hears a
//! nonce and nothing else. A recorded proof does not fit another nonce, nor the proof of one end the other end, nor
//! that for one service another service.
//!
//! The keys of the session are derived from the secret and both greetings, one for each direction. A relay between two
//! processes that hold the secret passes everything on or breaks the session: it has no key, and cannot change the
//! nonces without the proofs.
//!
//! The keys have no part that is forgotten: who has recorded a session and later gets the secret can read it.

use secrets::{Mac, Purpose, Secret};

use crate::cipher::Cipher;
use crate::seal::{Opener, Sealer};

/// Version of the handshake and of everything that follows. Processes of different versions refuse each other.
pub const VERSION: u16 = 4;
/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 8 + NONCE_BYTES;
/// Bytes of the answer to it.
pub const CHALLENGE_BYTES: usize = GREETING_BYTES + PROOF_BYTES;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = Mac::BYTES;

const MAGIC: [u8; 4] = *b"plch";
const NONCE_BYTES: usize = 32;
/// Where versions up to 2, which began with the secret itself, had their magic.
const FORMER_MAGIC: usize = 32;

const OF_LISTENER: Purpose = Purpose::new("proof of the end that listens");
const OF_CONNECTOR: Purpose = Purpose::new("proof of the end that connects");
const FROM_LISTENER: Purpose = Purpose::new("frames of the end that listens");
const FROM_CONNECTOR: Purpose = Purpose::new("frames of the end that connects");

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Processes meet at process 0, and have their control channel there.
    Meeting,
    /// Processes ask each other for bytes.
    Peers,
    /// Ranks of a world send messages.
    World,
}

impl Service {
    fn number(self) -> u8 {
        match self {
            Service::Meeting => 1,
            Service::Peers => 2,
            Service::World => 3,
        }
    }
}

/// Why a handshake fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The first bytes are not those of a greeting.
    #[error("the bytes are not those of a pleach process")]
    Magic,
    /// Another version.
    #[error(
        "it has version {0} of the messages, and this process version {VERSION}; start all processes with the same binary"
    )]
    Version(u16),
    /// A connection for another use.
    #[error("it is there for another use; connect to the address of that use")]
    Service,
    /// A proof that the secret does not confirm.
    #[error("its proof is not one by the token of this process")]
    Proof,
    /// No random numbers.
    #[error("the system has no random numbers for a connection")]
    Random,
}

/// Both ends have proven that they hold the secret.
#[derive(Debug)]
pub struct Session {
    /// Seals the frames of this end.
    pub sealer: Sealer,
    /// Opens those of the other end.
    pub opener: Opener,
}

type Greeting = [u8; GREETING_BYTES];

/// The end that has connected, before the other one has shown its proof.
#[derive(Debug)]
pub struct Connecting {
    secret: Secret,
    greeting: Greeting,
}

/// The end that listens, before the other one has shown its proof.
#[derive(Debug)]
pub struct Challenged {
    secret: Secret,
    greetings: Greetings,
}

/// Both greetings, which every proof and every key of a session depends on.
#[derive(Clone, Copy, Debug)]
struct Greetings {
    of_connector: Greeting,
    of_listener: Greeting,
}

impl Connecting {
    /// Begins a connection for `service`.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn new(secret: &Secret, service: Service) -> Result<Connecting, HandshakeError> {
        Ok(Connecting { secret: secret.clone(), greeting: greeting(service)? })
    }

    /// The first bytes of the connection.
    pub fn greeting(&self) -> &[u8; GREETING_BYTES] {
        &self.greeting
    }

    /// The session, and the proof of this end, once `challenge` has come whole: its first [`CHALLENGE_BYTES`] bytes.
    /// Nothing of this end is shown before the proof of the other one is right.
    ///
    /// # Errors
    /// Bytes that do not begin an answer, however few they are; a wrong proof.
    pub fn answer(&self, challenge: &[u8]) -> Result<Option<([u8; PROOF_BYTES], Session)>, HandshakeError> {
        check(challenge, self.greeting[6])?;
        let Some((of_listener, rest)) = challenge.split_first_chunk() else { return Ok(None) };
        let Some(proof) = rest.get(..PROOF_BYTES) else { return Ok(None) };
        let greetings = Greetings { of_connector: self.greeting, of_listener: *of_listener };
        if !self.secret.confirms(OF_LISTENER, &greetings.parts(), proof) {
            return Err(HandshakeError::Proof);
        }
        let own = *self.secret.mac(OF_CONNECTOR, &greetings.parts()).bytes();
        Ok(Some((own, greetings.session(&self.secret, (FROM_CONNECTOR, FROM_LISTENER)))))
    }
}

impl Challenged {
    /// Answers `greeting`, which came over a connection to the address of `service`.
    ///
    /// # Errors
    /// A greeting of something else, or of another version.
    pub fn new(
        secret: &Secret,
        service: Service,
        greeting_of_connector: &[u8; GREETING_BYTES],
    ) -> Result<Challenged, HandshakeError> {
        let of_listener = greeting(service)?;
        check(greeting_of_connector, of_listener[6])?;
        let greetings = Greetings { of_connector: *greeting_of_connector, of_listener };
        Ok(Challenged { secret: secret.clone(), greetings })
    }

    /// The answer.
    pub fn challenge(&self) -> [u8; CHALLENGE_BYTES] {
        let proof = self.secret.mac(OF_LISTENER, &self.greetings.parts());
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[..GREETING_BYTES].copy_from_slice(&self.greetings.of_listener);
        challenge[GREETING_BYTES..].copy_from_slice(proof.bytes());
        challenge
    }

    /// The session, if `proof` is that of the other end.
    ///
    /// # Errors
    /// A wrong proof.
    pub fn admit(&self, proof: &[u8]) -> Result<Session, HandshakeError> {
        if !self.secret.confirms(OF_CONNECTOR, &self.greetings.parts(), proof) {
            return Err(HandshakeError::Proof);
        }
        Ok(self.greetings.session(&self.secret, (FROM_LISTENER, FROM_CONNECTOR)))
    }
}

/// The bytes with which a listener answers a greeting of another version: processes of every version read its own from
/// them.
pub fn unproven_greeting(service: Service) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6] = service.number();
    bytes[7] = Cipher::of_processor().number();
    bytes
}

fn greeting(service: Service) -> Result<Greeting, HandshakeError> {
    let mut bytes = unproven_greeting(service);
    let nonce = Secret::random().map_err(|_| HandshakeError::Random)?;
    bytes[GREETING_BYTES - NONCE_BYTES..].copy_from_slice(nonce.bytes());
    Ok(bytes)
}

/// Whether `bytes` begin a greeting for `service`, as far as they have come.
fn check(bytes: &[u8], service: u8) -> Result<(), HandshakeError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(former_version(bytes).map_or(HandshakeError::Magic, HandshakeError::Version));
    }
    match bytes {
        [_, _, _, _, low, high, ..] if u16::from_le_bytes([*low, *high]) != VERSION => {
            Err(HandshakeError::Version(u16::from_le_bytes([*low, *high])))
        }
        [_, _, _, _, _, _, other, ..] if *other != service => Err(HandshakeError::Service),
        _ => Ok(()),
    }
}

/// The version of a process that began with its secret.
fn former_version(bytes: &[u8]) -> Option<u16> {
    let version = bytes.get(FORMER_MAGIC..)?.strip_prefix(&MAGIC)?.first_chunk()?;
    Some(u16::from_le_bytes(*version)).filter(|version| *version < VERSION)
}

impl Greetings {
    fn parts(&self) -> [&[u8]; 2] {
        [&self.of_connector, &self.of_listener]
    }

    /// The session of the end that seals for the first purpose and opens what is sealed for the second.
    fn session(&self, secret: &Secret, (own, other): (Purpose, Purpose)) -> Session {
        let cipher = Cipher::of_both(self.of_connector[7], self.of_listener[7]);
        let key = |purpose| cipher.key(&secret.derive(purpose, &self.parts()));
        Session { sealer: Sealer::new(key(own)), opener: Opener::new(key(other)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret::new([7; 32]);

    /// A greeting, the answer to it, and the proof that follows.
    fn recorded(secret: &Secret) -> (Greeting, [u8; CHALLENGE_BYTES], [u8; PROOF_BYTES]) {
        let connecting = Connecting::new(secret, Service::Meeting).unwrap();
        let challenge = Challenged::new(secret, Service::Meeting, connecting.greeting()).unwrap().challenge();
        let (proof, _) = connecting.answer(&challenge).unwrap().unwrap();
        (*connecting.greeting(), challenge, proof)
    }

    #[test]
    fn holders_of_one_secret_have_a_session_and_others_none() {
        for (of_listener, expected) in [(SECRET, Ok(())), (Secret::new([8; 32]), Err(HandshakeError::Proof))] {
            let connecting = Connecting::new(&SECRET, Service::World).unwrap();
            let challenged = Challenged::new(&of_listener, Service::World, connecting.greeting()).unwrap();
            let challenge = challenged.challenge();
            for len in 0..CHALLENGE_BYTES {
                assert!(connecting.answer(&challenge[..len]).unwrap().is_none(), "{len} bytes are too few");
            }
            let answered = connecting.answer(&challenge);
            assert_eq!(answered.as_ref().map(|_| ()).map_err(Clone::clone), expected);
            if let Ok(Some((proof, mut near))) = answered {
                let mut far = challenged.admit(&proof).unwrap();
                let (mut there, mut back) = (vec![], vec![]);
                near.sealer.append(&[5], &[], &mut there);
                assert_eq!(far.opener.open_head(&mut there).unwrap().0, [5]);
                far.sealer.append(&[6], &[], &mut back);
                assert_eq!(near.opener.open_head(&mut back).unwrap().0, [6]);
            }
        }
    }

    #[test]
    fn no_byte_of_a_handshake_has_the_secret() {
        let secret = Secret::random().unwrap();
        let (greeting, challenge, proof) = recorded(&secret);
        let all = [&greeting[..], &challenge, &proof].concat();
        assert!(!all.windows(8).any(|bytes| secret.bytes().windows(8).any(|own| own == bytes)));
    }

    #[test]
    fn a_recorded_handshake_is_refused_by_both_ends() {
        let (greeting, challenge, proof) = recorded(&SECRET);
        let challenged = Challenged::new(&SECRET, Service::Meeting, &greeting).unwrap();
        assert_ne!(challenged.challenge(), challenge, "a nonce is drawn for each connection");
        assert_eq!(challenged.admit(&proof).unwrap_err(), HandshakeError::Proof);
        let connecting = Connecting::new(&SECRET, Service::Meeting).unwrap();
        assert_eq!(connecting.answer(&challenge).unwrap_err(), HandshakeError::Proof);
    }

    #[test]
    fn a_proof_is_none_of_the_other_end_nor_for_another_service() {
        let connecting = Connecting::new(&SECRET, Service::Meeting).unwrap();
        let challenged = Challenged::new(&SECRET, Service::Meeting, connecting.greeting()).unwrap();
        let challenge = challenged.challenge();
        let reflected = challenged.admit(&challenge[GREETING_BYTES..]);
        assert_eq!(reflected.unwrap_err(), HandshakeError::Proof, "the listener's own proof");
        let (proof, _) = connecting.answer(&challenge).unwrap().unwrap();
        let reflected = [&challenge[..GREETING_BYTES], &proof].concat();
        assert_eq!(connecting.answer(&reflected).unwrap_err(), HandshakeError::Proof, "the connector's own proof");
        let reflected = [&connecting.greeting()[..], &proof].concat();
        assert_eq!(connecting.answer(&reflected).unwrap_err(), HandshakeError::Proof, "its own greeting, too");
        assert_eq!(
            Challenged::new(&SECRET, Service::World, connecting.greeting()).unwrap_err(),
            HandshakeError::Service
        );
        let mut for_world = *connecting.greeting();
        for_world[6] = Service::World.number();
        let challenge = Challenged::new(&SECRET, Service::World, &for_world).unwrap().challenge();
        assert_eq!(connecting.answer(&challenge).unwrap_err(), HandshakeError::Service);
        let mut for_meeting = challenge;
        for_meeting[6] = Service::Meeting.number();
        assert_eq!(connecting.answer(&for_meeting).unwrap_err(), HandshakeError::Proof);
    }

    #[test]
    fn every_changed_byte_of_a_handshake_is_found() {
        let connecting = Connecting::new(&SECRET, Service::Meeting).unwrap();
        let challenged = Challenged::new(&SECRET, Service::Meeting, connecting.greeting()).unwrap();
        let challenge = challenged.challenge();
        for at in 0..CHALLENGE_BYTES {
            let mut changed = challenge;
            changed[at] ^= 1;
            assert!(connecting.answer(&changed).is_err(), "byte {at} of the challenge");
        }
        for at in 0..GREETING_BYTES {
            let mut changed = *connecting.greeting();
            changed[at] ^= 1;
            let answer = Challenged::new(&SECRET, Service::Meeting, &changed);
            let is_found = answer.map_or(true, |other| connecting.answer(&other.challenge()).is_err());
            assert!(is_found, "byte {at} of the greeting");
        }
        let (proof, _) = connecting.answer(&challenge).unwrap().unwrap();
        for at in 0..PROOF_BYTES {
            let mut changed = proof;
            changed[at] ^= 1;
            assert!(challenged.admit(&changed).is_err(), "byte {at} of the proof");
        }
        assert!(challenged.admit(&proof[1..]).is_err(), "a shorter proof");
    }

    #[test]
    fn other_versions_and_foreign_bytes_are_named() {
        let mut newer = unproven_greeting(Service::Meeting);
        newer[4] = 9;
        let refused = |greeting: &Greeting| Challenged::new(&SECRET, Service::Meeting, greeting).unwrap_err();
        assert_eq!(refused(&newer), HandshakeError::Version(9));
        // Version 2: the secret, then a frame.
        let mut older = [0x5a; GREETING_BYTES];
        older[32..].copy_from_slice(b"plch\x02\x00\x01\x00");
        assert_eq!(refused(&older), HandshakeError::Version(2));
        assert_eq!(refused(&[0x5a; GREETING_BYTES]), HandshakeError::Magic);
        let connecting = Connecting::new(&SECRET, Service::Meeting).unwrap();
        assert_eq!(connecting.answer(b"HTTP/1.1 400").unwrap_err(), HandshakeError::Magic);
        assert_eq!(connecting.answer(&newer[..6]).unwrap_err(), HandshakeError::Version(9));
    }
}
