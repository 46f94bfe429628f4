//! A connection that never blocks: bytes in, messages out, and back.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry};
use session::Session;

use crate::frame::FrameError;
use crate::message::{Message, decode};
use crate::records::Records;

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    /// Bytes as they have come.
    arrived: Vec<u8>,
    /// Bytes of messages.
    incoming: Vec<u8>,
    outgoing: VecDeque<Arc<[u8]>>,
    /// Bytes of the first outgoing message that are sealed.
    taken: usize,
    /// The record that is being written, of which `written` bytes are with the system.
    sealed: Vec<u8>,
    written: usize,
    /// None before both ends have proven that they hold the token.
    records: Option<Records>,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The peer may send more.
    Open,
    /// As many bytes are there as were wanted; more may be.
    Full,
    /// The peer has closed its end.
    Closed,
}

/// The messages that have come.
pub(crate) struct Received {
    pub(crate) messages: Vec<Message>,
    /// Records of the peer that were whole: signs of life.
    pub(crate) records: usize,
}

impl Link {
    /// A link over a connected `stream`.
    pub(crate) fn new(stream: TcpStream) -> Link {
        let (arrived, incoming, outgoing, sealed) = (vec![], vec![], VecDeque::new(), vec![]);
        Link { stream, arrived, incoming, outgoing, taken: 0, sealed, written: 0, records: None }
    }

    /// Returns the same as [`Link::new`], for a connection that was blocking: bytes that have `arrived` and are not
    /// opened, and `incoming` ones that are.
    pub(crate) fn resumed(stream: TcpStream, records: Records, arrived: Vec<u8>, incoming: Vec<u8>) -> Link {
        Link { arrived, incoming, records: Some(records), ..Link::new(stream) }
    }

    /// From now on all bytes are those of `session`.
    pub(crate) fn secure(&mut self, session: Session) {
        self.records = Some(Records::new(session));
    }

    /// Registers the connection under `id`.
    pub(crate) fn register(&mut self, registry: &Registry, id: usize) -> io::Result<()> {
        self.stream.register(registry, mio::Token(id), Interest::READABLE | Interest::WRITABLE)
    }

    /// Forgets the registration.
    pub(crate) fn deregister(&mut self, registry: &Registry) {
        // A connection that is not registered has nothing to forget.
        let _ = self.stream.deregister(registry);
    }

    /// Reads what has come, until `most` bytes are there that were not used.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<Flow> {
        let mut block = [0; BLOCK];
        while self.arrived.len() < most {
            let room = BLOCK.min(most - self.arrived.len());
            match self.stream.read(&mut block[..room]) {
                Ok(0) => return Ok(Flow::Closed),
                Ok(read) => self.arrived.extend(&block[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flow::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flow::Full)
    }

    /// The first bytes of a connection without records, if all of them have come.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let taken = *self.arrived.first_chunk()?;
        self.arrived.drain(..COUNT);
        Some(taken)
    }

    /// The messages that are whole, each with a content of at most `limit` bytes.
    pub(crate) fn receive(&mut self, limit: usize) -> Result<Received, FrameError> {
        let opened = self.records.as_mut().map(|records| records.open(&mut self.arrived, &mut self.incoming));
        let records = opened.transpose()?.unwrap_or_default();
        let (mut messages, mut at) = (vec![], 0);
        while let Some((message, length)) = decode(&self.incoming[at..], limit)? {
            messages.push(message);
            at += length;
        }
        self.incoming.drain(..at);
        Ok(Received { messages, records })
    }

    /// Sends a few bytes without a record, which a fresh connection takes at once.
    pub(crate) fn send_first(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.stream.write(bytes)? == bytes.len() { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Queues the bytes of a message.
    pub(crate) fn queue(&mut self, bytes: Arc<[u8]>) {
        self.outgoing.push_back(bytes);
    }

    /// Whether everything is with the system.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.sealed.is_empty()
    }

    /// Sends as much as the system takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        loop {
            while self.written < self.sealed.len() {
                match self.stream.write(&self.sealed[self.written..]) {
                    Ok(written) => self.written += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            // A large run has many links, and few of them send at one time.
            (self.sealed, self.written) = (vec![], 0);
            let (Some(records), Some(bytes)) = (&mut self.records, self.outgoing.front()) else { return Ok(()) };
            self.taken += records.seal(&bytes[self.taken..], &mut self.sealed);
            if self.taken == bytes.len() {
                self.outgoing.pop_front();
                self.taken = 0;
            }
        }
    }

    /// Nothing more will be sent; the peer may still send.
    pub(crate) fn end_sending(&self) {
        // A peer that is gone needs no end.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
