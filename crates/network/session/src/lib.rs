//! Connections between holders of one secret: two processes prove to each other that they hold it, without showing it
//! ([`Connecting`], [`Challenged`]), and seal every frame that they send then ([`Sealer`], [`Incoming`]).

#![forbid(unsafe_code)]

mod cipher;
mod crowd;
mod frames;
mod handshake;
mod seal;

pub use crowd::first_to_go;
pub use frames::{Head, Incoming};
pub use handshake::{
    CHALLENGE_BYTES, Challenged, Connecting, GREETING_BYTES, HandshakeError, PROOF_BYTES, Service, Session, VERSION,
    unproven_greeting,
};
pub use seal::{Opener, PayloadSeal, SEAL_BYTES, SealError, Sealer};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as session;
#[cfg(test)]
mod tests;
