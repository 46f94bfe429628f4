//! Bytes that arrive from elsewhere: whatever they are, a handshake and a frame refuse them or ask for more.
//!
//! As plain tests they try some hundred inputs, other ones each time; what fails prints the seed that repeats it. For
//! longer, or under a fuzzer that looks at what is reached (`cargo bolero`, which brings libFuzzer):
//!
//! ```text
//! BOLERO_RANDOM_ITERATIONS=10000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test -p session fuzz -- --nocapture
//! cargo bolero test --package session tests::fuzz::any_frames_of_others_are_refused
//! ```

use bolero::TypeGenerator;
use secrets::Secret;
use session::{
    CHALLENGE_BYTES, Challenged, Connecting, GREETING_BYTES, PROOF_BYTES, SEAL_BYTES, Service, Session,
    unproven_greeting,
};

const SECRET: Secret = Secret::new([7; 32]);

fn ends() -> (Session, Session) {
    let connecting = Connecting::new(&SECRET, Service::World).unwrap();
    let challenged = Challenged::new(&SECRET, Service::World, connecting.greeting()).unwrap();
    let (proof, near) = connecting.answer(&challenged.challenge()).unwrap().unwrap();
    (near, challenged.admit(&proof).unwrap())
}

/// Bytes, with a sound beginning or not.
fn begun(bytes: &[u8], has_beginning: bool, len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if has_beginning {
        bytes.resize(len, 0);
        bytes[..8].copy_from_slice(&unproven_greeting(Service::Meeting)[..8]);
    }
    bytes
}

#[test]
fn any_challenge_of_others_is_refused() {
    let connecting = Connecting::new(&SECRET, Service::Meeting).unwrap();
    bolero::check!().with_type::<(Vec<u8>, bool)>().for_each(|(bytes, has_beginning)| {
        let bytes = begun(bytes, *has_beginning, CHALLENGE_BYTES);
        match connecting.answer(&bytes) {
            Ok(Some(_)) => panic!("a proof without the secret: {bytes:?}"),
            Ok(None) => assert!(bytes.len() < CHALLENGE_BYTES),
            Err(_) => {}
        }
    });
}

#[test]
fn any_greeting_is_answered_or_refused_and_no_proof_of_others_admits() {
    bolero::check!().with_type::<(Vec<u8>, bool, [u8; PROOF_BYTES])>().for_each(|(bytes, has_beginning, proof)| {
        let bytes = begun(bytes, *has_beginning, GREETING_BYTES);
        let Some(greeting) = bytes.first_chunk() else { return };
        if let Ok(challenged) = Challenged::new(&SECRET, Service::Meeting, greeting) {
            assert!(challenged.admit(proof).is_err());
        }
    });
}

/// A frame of the other end with changed bytes.
#[derive(Clone, Debug, TypeGenerator)]
struct Changed {
    fields: Vec<u8>,
    payload: Vec<u8>,
    /// Places, and what is put there.
    changes: Vec<(u16, u8)>,
    cut: u8,
}

#[test]
fn any_frames_of_others_are_refused() {
    bolero::check!().with_type::<Changed>().for_each(|Changed { fields, payload, changes, cut }| {
        let (mut near, mut far) = ends();
        let mut head = vec![];
        near.sealer.append(fields, payload, &mut head);
        let mut sealed = head.split_off(fields.len() + SEAL_BYTES);
        let whole = (head.clone(), sealed.clone());
        for (at, byte) in changes {
            let at = usize::from(*at) % (head.len() + sealed.len());
            *if at < head.len() { &mut head[at] } else { &mut sealed[at - whole.0.len()] } = *byte;
        }
        head.truncate(head.len() - (usize::from(*cut) & 3).min(head.len()));
        let is_same = (&head, &sealed) == (&whole.0, &whole.1);
        let opened = far.opener.open_head(&mut head);
        match opened {
            Ok((read, seal)) => {
                assert_eq!(read, fields);
                assert_eq!(far.opener.open_payload(&seal, &mut sealed).is_ok(), is_same);
                assert!(!is_same || sealed == *payload);
            }
            Err(_) => assert!(!is_same, "{fields:?}"),
        }
    });
}
