//! Processes of a run find each other, prove that they run the same, and stay in touch.
//!
//! Process 0 listens at one address; all others connect ([`meet`]). Both ends of a connection prove that they hold the
//! token of the run ([`Token`]) without showing it, and seal everything that follows ([`session`]): process 0 first, so
//! that nothing is said to others. Each process introduces itself ([`Introduction`]) with hashes of its binary, run
//! file, program and text. Where they agree, all receive the [`Directory`]; where they do not, all receive the same
//! list of reasons. The connections stay open as the control channel ([`Control`]): heartbeats, failures, signals, and
//! small messages. Bytes that are too many for process 0 go from one process to another ([`PeerService`],
//! [`PeerLink`]), under a token of the run.

#![forbid(unsafe_code)]

mod admission;
mod control;
mod error;
mod failure;
mod frame;
mod introduction;
mod introductions;
mod join;
mod link;
mod listening;
mod message;
mod peers;
mod records;
mod rejections;
mod sealed_stream;
mod service;
mod shared;
mod token;

pub use control::Control;
pub use error::{ControlError, RendezvousError, TokenError};
pub use failure::{FailureReport, Printer, ProcessFailure, StopSignal};
pub use frame::{FrameError, MAX_BYTES};
pub use introduction::{Directory, Identity, Introduction, ProcessEntry, TextHash, hash_bytes, hash_file};
pub use join::meet;
pub use listening::Listening;
pub use message::{Message, decode, encode};
pub use peers::{PEER_MESSAGE_BYTES, PeerLink, PeerService};
pub use sealed_stream::{SealedStream, StreamError};
pub use session::Service;
pub use token::Token;

use std::time::Duration;

/// Times of a rendezvous and of its control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time in which all processes must arrive: `run.rendezvous_seconds`.
    pub rendezvous: Duration,
    /// Time after which a silent process counts as failed: `run.heartbeat_seconds`.
    pub heartbeat: Duration,
}

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as rendezvous;
#[cfg(test)]
mod tests;
