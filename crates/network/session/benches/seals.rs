//! Seconds of a seal, and of other ways to authenticate the same bytes by the same library.

use std::hint::black_box;
use std::time::Instant;

use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use secrets::Secret;
use session::{Challenged, Connecting, Service, Session};

/// A header of a frame, and a piece of a message.
const LENGTHS: [usize; 2] = [112, 64 << 10];
const ROUNDS: usize = 9;

fn main() {
    let Session { mut sealer, .. } = session();
    for len in LENGTHS {
        let bytes = vec![7u8; len];
        let mut copy = bytes.clone();
        // Without the cost of a frame's head, which the first length shows.
        let mut frame = vec![];
        let mut append = |payload: &[u8]| {
            frame.clear();
            sealer.append(&[0; 4], payload, &mut frame);
        };
        let of_head = seconds(len, || append(&[]));
        let of_frame = seconds(len, || append(&bytes));
        print("copy and seal", len, of_frame - of_head);
        for (name, algorithm) in [("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)] {
            let associated = associated_data(algorithm, &bytes);
            print(&format!("{name}, associated data"), len, associated);
        }
        let chacha = key(&CHACHA20_POLY1305);
        let sealed = seconds(len, || {
            copy.copy_from_slice(&bytes);
            let _ = black_box(chacha.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut copy));
        });
        print("ChaCha20-Poly1305, copy and seal", len, sealed);
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, &[3; 32]);
        print("HMAC-SHA-256", len, seconds(len, || _ = black_box(hmac::sign(&hmac, &bytes))));
    }
}

fn session() -> Session {
    let secret = Secret::new([1; 32]);
    let (connecting, challenged) = Connecting::new(&secret, Service::World)
        .and_then(|connecting| {
            Challenged::new(&secret, Service::World, connecting.greeting()).map(|challenged| (connecting, challenged))
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let answered = connecting.answer(&challenged.challenge()).unwrap_or_else(|error| panic!("{error}"));
    answered.map(|(_, session)| session).unwrap_or_else(|| unreachable!("the challenge is whole"))
}

fn associated_data(algorithm: &'static Algorithm, bytes: &[u8]) -> f64 {
    let key = key(algorithm);
    seconds(bytes.len(), || _ = black_box(key.seal_in_place_separate_tag(nonce(), Aad::from(bytes), &mut [])))
}

fn key(algorithm: &'static Algorithm) -> LessSafeKey {
    let key = UnboundKey::new(algorithm, &[9; 32]);
    LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("keys have 32 bytes")))
}

/// The same one again and again, which only a measurement may use.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The least seconds of one call, of some rounds of calls.
fn seconds(len: usize, mut call: impl FnMut()) -> f64 {
    let calls = (8_000_000 / len).max(20);
    let round = |_| {
        let started = Instant::now();
        (0..calls).for_each(|_| call());
        started.elapsed().as_secs_f64() / calls as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn print(name: &str, len: usize, seconds: f64) {
    println!("{name:34} {len:6} bytes: {:7.2} us, {:5.2} GB/s", seconds * 1e6, len as f64 / seconds / 1e9);
}
