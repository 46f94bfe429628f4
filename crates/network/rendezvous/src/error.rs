//! Errors of the rendezvous and of the control channel.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use launcher::Address;
use secrets::SecretError;

use crate::failure::ProcessFailure;
use crate::frame::FrameError;

/// Why a process has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// `PLEACH_TOKEN` is not a token.
    #[error(
        "PLEACH_TOKEN must be 64 hexadecimal digits, the same for all processes; use e.g. the output of `openssl rand -hex 32`"
    )]
    Variable,
    /// Nothing says where the token is.
    #[error(
        "PLEACH_TOKEN, PLEACH_TOKEN_FILE and HOME are missing; set PLEACH_TOKEN to the same 64 hexadecimal digits for all processes"
    )]
    NoPlace,
    /// A file that cannot be used, or a system without random numbers.
    #[error("the token of runs: {0}; or set PLEACH_TOKEN to the same 64 hexadecimal digits for all processes")]
    Secret(#[from] SecretError),
}

/// Why a run does not start.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// The processes do not make a run; all of them hear the same reasons.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    /// Process 0 cannot listen.
    #[error(
        "process 0 cannot listen at {address}: {reason}; the address must be one of its own host, with a port that no other \
         program has, maybe of another user; set PLEACH_RENDEZVOUS=HOST:PORT for all processes. The token can stay: no \
         process shows it"
    )]
    Listen {
        /// The address.
        address: Address,
        /// The reason.
        reason: String,
    },
    /// Process 0 was not found.
    #[error(
        "process {process} found no process 0 at {address} within {waited:?}: {reason}; start process 0, check that its host \
         has this address for other hosts, or raise run.rendezvous_seconds"
    )]
    NotListening {
        /// This process.
        process: usize,
        /// The address.
        address: Address,
        /// The time that it tried.
        waited: Duration,
        /// The last reason.
        reason: String,
    },
    /// No proof came.
    #[error(
        "process {process} got no proof of the token from {address}: {reason}; see the messages of process 0, and whether \
         another program, maybe of another user, has its port. The token can stay: this process has not shown it"
    )]
    NoProof {
        /// This process.
        process: usize,
        /// The address.
        address: Address,
        /// The reason.
        reason: String,
    },
    /// A wrong proof came.
    #[error(
        "process {process} got a wrong proof from {address}: the process there has another token; give all processes the \
         same token (PLEACH_TOKEN, PLEACH_TOKEN_FILE or the same home folder), and see whether another program, maybe of \
         another user, has the port of process 0. The token can stay: this process has not shown it"
    )]
    WrongProof {
        /// This process.
        process: usize,
        /// The address.
        address: Address,
    },
    /// Process 0 proved to hold the token and closed the connection.
    #[error("process {process} got no answer from process 0 at {address}: {reason}; see the messages of process 0")]
    NoAnswer {
        /// This process.
        process: usize,
        /// The address.
        address: Address,
        /// The reason.
        reason: String,
    },
    /// Something else listens at the address of process 0, or is on the way to it.
    #[error(
        "process {process}: {address} does not answer as process 0 of this version does: {error}; see whether another \
         program, maybe of another user, has its port. The token can stay: this process has not shown it"
    )]
    Malformed {
        /// This process.
        process: usize,
        /// The address.
        address: Address,
        /// The reason.
        error: FrameError,
    },
    /// The system refuses sockets or threads.
    #[error("the control channel cannot be opened: {0}")]
    System(#[from] io::Error),
}

/// Why a message between processes was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A process failed.
    #[error("{0}")]
    Failed(ProcessFailure),
    /// A deadline passed.
    #[error("{topic}: {missing} did not answer within {waited:?}")]
    Deadline {
        /// Name of the message.
        topic: String,
        /// The processes that are awaited.
        missing: String,
        /// The deadline.
        waited: Duration,
    },
    /// A process ended before it was needed.
    #[error("{topic}: {process} has ended its part of the run")]
    Left {
        /// Name of the message.
        topic: String,
        /// The process.
        process: String,
    },
    /// More bytes than a message has.
    #[error("{topic}: a message of {bytes} bytes must have at most {limit}; use a shared folder for larger ones")]
    TooLarge {
        /// Name of the message.
        topic: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// The listening address as an error shows it: `node0:29400 (10.0.0.1:29400)`.
pub(crate) fn resolved(address: &Address, local: Option<SocketAddr>) -> String {
    match local {
        Some(local) if local.to_string() != address.to_string() => format!("{address} ({local})"),
        Some(_) | None => address.to_string(),
    }
}
