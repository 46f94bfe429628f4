//! A connection that never blocks: bytes in, messages out, and back.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry};

use crate::frame::FrameError;
use crate::message::{Message, decode};

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    incoming: Vec<u8>,
    outgoing: VecDeque<Arc<[u8]>>,
    /// Bytes of the first outgoing message that are sent.
    sent: usize,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The peer may send more.
    Open,
    /// The peer has closed its end.
    Closed,
}

impl Link {
    /// A link over a connected `stream`; `incoming` was read from it before.
    pub(crate) fn new(stream: TcpStream, incoming: Vec<u8>) -> Link {
        Link { stream, incoming, outgoing: VecDeque::new(), sent: 0 }
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

    /// Reads what has arrived, at most `most` bytes in all.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<Flow> {
        let mut block = [0; BLOCK];
        while self.incoming.len() < most {
            let room = BLOCK.min(most - self.incoming.len());
            match self.stream.read(&mut block[..room]) {
                Ok(0) => return Ok(Flow::Closed),
                Ok(read) => self.incoming.extend(&block[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flow::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flow::Open)
    }

    /// The bytes that are not used yet.
    pub(crate) fn incoming(&self) -> &[u8] {
        &self.incoming
    }

    /// Removes the first `count` of them.
    pub(crate) fn consume(&mut self, count: usize) {
        self.incoming.drain(..count.min(self.incoming.len()));
    }

    /// The messages that are whole, each with a payload of at most `limit` bytes.
    pub(crate) fn messages(&mut self, limit: usize) -> Result<Vec<Message>, FrameError> {
        let (mut messages, mut at) = (vec![], 0);
        while let Some((message, length)) = decode(&self.incoming[at..], limit)? {
            messages.push(message);
            at += length;
        }
        self.consume(at);
        Ok(messages)
    }

    /// Queues the bytes of a message.
    pub(crate) fn queue(&mut self, bytes: Arc<[u8]>) {
        self.outgoing.push_back(bytes);
    }

    /// Whether everything is with the system.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Sends as much as the system takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(bytes) = self.outgoing.front() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == bytes.len() {
                self.outgoing.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }

    /// Nothing more will be sent; the peer may still send.
    pub(crate) fn end_sending(&self) {
        // A peer that is gone needs no end.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
