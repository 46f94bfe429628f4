//! The messages between processes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{ProcessFailure, StopSignal};
use crate::frame::{self, Frame, FrameError};
use crate::introduction::{Directory, Introduction};

/// A message. Structured ones are JSON within their frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// First message of a process to process 0.
    Introduction(Introduction),
    /// Answer of process 0: the run starts.
    Directory(Directory),
    /// Answer of process 0: the run does not start, for these reasons.
    Refusal(Vec<String>),
    /// A sign of life.
    Heartbeat,
    /// The run has failed.
    Failure(ProcessFailure),
    /// A signal reached a process.
    Stop(StopSignal),
    /// The sender ends its part of the run without a failure.
    Goodbye,
    /// Bytes of the run.
    Parcel {
        /// Name by which the receiver asks for them.
        topic: String,
        /// The content.
        bytes: Vec<u8>,
    },
}

const INTRODUCTION: u16 = 1;
const DIRECTORY: u16 = 2;
const REFUSAL: u16 = 3;
const HEARTBEAT: u16 = 4;
const FAILURE: u16 = 5;
const STOP: u16 = 6;
const GOODBYE: u16 = 7;
const PARCEL: u16 = 8;

/// The bytes of `message` on a connection.
pub fn encode(message: &Message) -> Vec<u8> {
    let (kind, payload) = match message {
        Message::Introduction(introduction) => (INTRODUCTION, json(introduction)),
        Message::Directory(directory) => (DIRECTORY, json(directory)),
        Message::Refusal(reasons) => (REFUSAL, json(reasons)),
        Message::Heartbeat => (HEARTBEAT, vec![]),
        Message::Failure(failure) => (FAILURE, json(failure)),
        Message::Stop(stop_signal) => (STOP, json(stop_signal)),
        Message::Goodbye => (GOODBYE, vec![]),
        Message::Parcel { topic, bytes } => (PARCEL, parcel(topic, bytes)),
    };
    Frame { kind, payload: &payload }.encode()
}

/// The message at the start of `bytes` and its length; `None` where more bytes are needed. Its payload has at most
/// `limit` bytes.
///
/// # Errors
/// See [`FrameError`].
pub fn decode(bytes: &[u8], limit: usize) -> Result<Option<(Message, usize)>, FrameError> {
    let Some((Frame { kind, payload }, length)) = frame::first(bytes, limit)? else { return Ok(None) };
    let message = match kind {
        INTRODUCTION => Message::Introduction(parsed(kind, payload)?),
        DIRECTORY => Message::Directory(parsed(kind, payload)?),
        REFUSAL => Message::Refusal(parsed(kind, payload)?),
        HEARTBEAT => Message::Heartbeat,
        FAILURE => Message::Failure(parsed(kind, payload)?),
        STOP => Message::Stop(parsed(kind, payload)?),
        GOODBYE => Message::Goodbye,
        PARCEL => opened(payload)?,
        unknown => return Err(FrameError::Kind(unknown)),
    };
    Ok(Some((message, length)))
}

/// Everything that is sent has a form in JSON; an empty payload is refused by the receiver.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn parsed<T: DeserializeOwned>(kind: u16, payload: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|error| FrameError::Payload { kind, reason: error.to_string() })
}

/// Length of the topic in one byte, the topic, the content.
fn parcel(topic: &str, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(topic.len()).unwrap_or(u8::MAX);
    let mut payload = Vec::with_capacity(1 + topic.len() + bytes.len());
    payload.push(length);
    payload.extend(topic.as_bytes());
    payload.extend(bytes);
    payload
}

fn opened(payload: &[u8]) -> Result<Message, FrameError> {
    let malformed = |reason: &str| FrameError::Payload { kind: PARCEL, reason: reason.into() };
    let (length, rest) = payload.split_first().ok_or_else(|| malformed("it is empty"))?;
    let (topic, bytes) = rest.split_at_checked(usize::from(*length)).ok_or_else(|| malformed("it ends in its name"))?;
    let topic = std::str::from_utf8(topic).map_err(|_| malformed("its name is not UTF-8"))?;
    Ok(Message::Parcel { topic: topic.into(), bytes: bytes.into() })
}
