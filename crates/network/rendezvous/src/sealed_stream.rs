//! A connection that blocks, between two ends that have proven to each other that they hold the token.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use session::{CHALLENGE_BYTES, Challenged, Connecting, GREETING_BYTES, PROOF_BYTES, Service};

use crate::frame::{self, FrameError};
use crate::link::Link;
use crate::message::{Message, decode, encode};
use crate::records::Records;
use crate::token::Token;

/// Bytes that are read at once.
const BLOCK: usize = 256 << 10;

/// One end of the connection.
#[derive(Debug)]
pub struct SealedStream {
    stream: TcpStream,
    records: Records,
    arrived: Vec<u8>,
    incoming: Vec<u8>,
}

/// Why nothing comes over a connection.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection ended, or time is up.
    #[error(transparent)]
    Ended(#[from] io::Error),
    /// The bytes are not those of the other end.
    #[error(transparent)]
    Malformed(#[from] FrameError),
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> io::Error {
        match error {
            StreamError::Ended(error) => error,
            StreamError::Malformed(error) => io::Error::new(ErrorKind::InvalidData, error),
        }
    }
}

impl SealedStream {
    /// Proves over `stream`, which this end has connected, once the other end has proven until `until`.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn connect(
        mut stream: TcpStream,
        token: &Token,
        service: Service,
        until: Instant,
    ) -> Result<SealedStream, StreamError> {
        let connecting = Connecting::new(token.secret(), service).map_err(FrameError::from)?;
        stream.write_all(connecting.greeting())?;
        let mut challenge = [0; CHALLENGE_BYTES];
        let mut filled = 0;
        let (proof, session) = loop {
            if let Some(answered) = connecting.answer(&challenge[..filled]).map_err(FrameError::from)? {
                break answered;
            }
            filled += read_some(&mut stream, &mut challenge[filled..], Some(until))?;
        };
        stream.write_all(&proof)?;
        Ok(SealedStream { stream, records: Records::new(session), arrived: vec![], incoming: vec![] })
    }

    /// Proves over `stream`, which the other end has connected, and waits for its proof until `until`.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn accept(
        mut stream: TcpStream,
        token: &Token,
        service: Service,
        until: Instant,
    ) -> Result<SealedStream, StreamError> {
        let mut greeting = [0; GREETING_BYTES];
        read_all(&mut stream, &mut greeting, until)?;
        let challenged = Challenged::new(token.secret(), service, &greeting).map_err(FrameError::from)?;
        stream.write_all(&challenged.challenge())?;
        let mut proof = [0; PROOF_BYTES];
        read_all(&mut stream, &mut proof, until)?;
        let session = challenged.admit(&proof).map_err(FrameError::from)?;
        Ok(SealedStream { stream, records: Records::new(session), arrived: vec![], incoming: vec![] })
    }

    /// Every wait from now on ends after `patience`.
    ///
    /// # Errors
    /// The system's.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// A connection that has ended.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        let bytes = encode(message);
        let (mut rest, mut sealed) = (&bytes[..], vec![]);
        while !rest.is_empty() {
            sealed.clear();
            while !rest.is_empty() && sealed.len() < BLOCK {
                rest = &rest[self.records.seal(rest, &mut sealed)..];
            }
            self.stream.write_all(&sealed)?;
        }
        Ok(())
    }

    /// The next message, with a content of at most `limit` bytes; where `until` is given, it comes before.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn receive(&mut self, limit: usize, until: Option<Instant>) -> Result<Message, StreamError> {
        let bytes = self.receive_bytes(limit, until)?;
        let message = decode(&bytes, limit)?.ok_or(ErrorKind::UnexpectedEof);
        Ok(message.map(|(message, _)| message).map_err(io::Error::from)?)
    }

    /// Receives as [`SealedStream::receive`] does, and returns the bytes of the message, as [`encode`] writes them.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn receive_bytes(&mut self, limit: usize, until: Option<Instant>) -> Result<Vec<u8>, StreamError> {
        let mut block = vec![];
        loop {
            self.records.open(&mut self.arrived, &mut self.incoming)?;
            if let Some((_, length)) = frame::first(&self.incoming, limit)? {
                let rest = self.incoming.split_off(length);
                return Ok(std::mem::replace(&mut self.incoming, rest));
            }
            block.resize(BLOCK, 0);
            let read = read_some(&mut self.stream, &mut block, until)?;
            self.arrived.extend(&block[..read]);
        }
    }

    /// The same connection, which blocks no more.
    pub(crate) fn into_link(self) -> io::Result<Link> {
        let SealedStream { stream, records, arrived, incoming } = self;
        stream.set_read_timeout(None)?;
        stream.set_nonblocking(true)?;
        Ok(Link::resumed(mio::net::TcpStream::from_std(stream), records, arrived, incoming))
    }
}

fn read_all(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += read_some(stream, &mut bytes[filled..], Some(until))?;
    }
    Ok(())
}

/// Reads at least one byte.
fn read_some(stream: &mut TcpStream, bytes: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
    loop {
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
        }
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
