//! The bytes of a connection as frames.

use super::arrival::Arrival;
use super::connection::{Connection, Fault};
use super::frame::{BadFrame, EAGER_LIMIT_BYTES, FIELDS_BYTES, Frame, HEADER_BYTES, Header, Part, Route};
use super::pieces::Piece;
use rustix::io::Errno;
use session::{Incoming, Opener, PayloadSeal};
use std::io::IoSliceMut;
use std::sync::Arc;

/// Bytes that are read at once. A short frame is handled when all of it is here.
pub(super) const BUFFER_BYTES: usize = 32 << 10;
const _: () = assert!(BUFFER_BYTES > HEADER_BYTES + EAGER_LIMIT_BYTES);

/// Bytes after which a read ends, so that pieces are written and folded between reads.
const READ_BYTES: usize = super::frame::PIECE_BYTES;

/// The state of a connection after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Everything that has come is read.
    All,
    /// More has come than is read at once.
    Some,
    /// The peer has closed the connection.
    End,
}

/// Handles a frame, except for pieces, with the bytes after it.
pub(super) type OnFrame<'a> = &'a mut dyn FnMut(Frame, &[u8]) -> Result<(), Fault>;

/// A reader of one connection.
pub(super) struct Input {
    buffer: Box<[u8]>,
    /// The unread bytes of the buffer are `start..end`.
    start: usize,
    end: usize,
    frames: Incoming<Header>,
    filling: Option<Filling>,
}

/// A piece whose bytes come from the socket into their place.
struct Filling {
    seal: PayloadSeal,
    part: Part,
    arrival: Arc<Arrival>,
    sender: usize,
    piece: Piece,
    filled: usize,
}

impl Input {
    /// A reader of what the other end of a session seals.
    pub(super) fn new(opener: Opener) -> Input {
        Input { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, frames: Incoming::new(opener), filling: None }
    }

    /// Reads what has come, up to about [`READ_BYTES`]. Pieces go to their places; `on_frame` handles every other
    /// frame.
    ///
    /// # Errors
    /// Bytes that the peer may not send; the first error of `on_frame`; the socket's.
    pub(super) fn read(&mut self, connection: &Connection, on_frame: OnFrame<'_>) -> Result<Read, Fault> {
        let mut read_bytes = 0;
        loop {
            while self.next_frame(connection, on_frame)? {}
            if read_bytes >= READ_BYTES {
                return Ok(Read::Some);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.fill(connection) {
                Ok(0) => return Ok(Read::End),
                Ok(read) => {
                    self.filled(read);
                    read_bytes += read;
                }
                Err(Errno::AGAIN) => return Ok(Read::All),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::Socket(error)),
            }
        }
    }

    /// Reads from the socket: the rest of a piece into its place, and then into the buffer.
    fn fill(&mut self, connection: &Connection) -> Result<usize, Errno> {
        let free = &mut self.buffer[self.end..];
        match &mut self.filling {
            Some(filling) => {
                let rest = &mut filling.piece.bytes_mut(filling.part.len as usize)[filling.filled..];
                rustix::io::readv(connection.socket(), &mut [IoSliceMut::new(rest), IoSliceMut::new(free)])
            }
            None => rustix::io::read(connection.socket(), free),
        }
    }

    fn filled(&mut self, read: usize) {
        let of_piece = self.filling.as_mut().map_or(0, |filling| {
            let of_piece = read.min(filling.part.len as usize - filling.filled);
            filling.filled += of_piece;
            of_piece
        });
        self.end += read - of_piece;
    }

    /// Handles one frame, or the part of a piece that has come; false when more has to come first.
    fn next_frame(&mut self, connection: &Connection, on_frame: OnFrame<'_>) -> Result<bool, Fault> {
        if let Some(filling) = self.filling.take() {
            return self.fill_from_buffer(filling, connection);
        }
        let waiting = &mut self.buffer[self.start..self.end];
        let Some((head, taken)) = self.frames.head(waiting, FIELDS_BYTES, Header::decode)? else { return Ok(false) };
        self.start += taken;
        if let Frame::Piece(part, route) = head.fields.frame {
            self.begin_piece(head.seal, part, route, connection)?;
            return Ok(true);
        }
        let waiting = &mut self.buffer[self.start..self.end];
        let Some(payload) = waiting.get_mut(..head.fields.payload_len as usize) else {
            self.frames.keep(head);
            return Ok(false);
        };
        self.frames.open(&head.seal, payload).map_err(BadFrame::from)?;
        on_frame(head.fields.frame, payload)?;
        self.start += payload.len();
        Ok(true)
    }

    fn begin_piece(
        &mut self,
        seal: PayloadSeal,
        part: Part,
        route: Route,
        connection: &Connection,
    ) -> Result<(), Fault> {
        if Some(route) != connection.route() {
            return Err(Fault::Unexpected("a piece by the other way of this connection"));
        }
        let (arrival, sender, piece) = connection.begin_piece(part)?;
        match route {
            Route::Shared => connection.complete_piece(part, &arrival, sender, piece),
            Route::Inline => self.filling = Some(Filling { seal, part, arrival, sender, piece, filled: 0 }),
        }
        Ok(())
    }

    /// Moves bytes from the buffer to the piece; true when the piece is whole.
    fn fill_from_buffer(&mut self, mut filling: Filling, connection: &Connection) -> Result<bool, Fault> {
        let len = filling.part.len as usize;
        let rest = &mut filling.piece.bytes_mut(len)[filling.filled..];
        let moved = rest.len().min(self.end - self.start);
        rest[..moved].copy_from_slice(&self.buffer[self.start..self.start + moved]);
        self.start += moved;
        filling.filled += moved;
        if filling.filled < len {
            self.filling = Some(filling);
            return Ok(false);
        }
        self.frames.open(&filling.seal, filling.piece.bytes_mut(len)).map_err(BadFrame::from)?;
        connection.complete_piece(filling.part, &filling.arrival, filling.sender, filling.piece);
        Ok(true)
    }
}
