//! Streams of gzip and zstd, of one part or of several, one after the other.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{FormatError, Problem};
use crate::growth::Growth;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip, also of several members.
    Gzip,
    /// zstd, also of several frames.
    Zstd,
}

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

impl Compression {
    /// The compression of a file that begins with `bytes`.
    pub fn of(bytes: &[u8]) -> Option<Compression> {
        // Frames of zstd that hold no data have 16 marks of their own.
        let is_skippable = bytes.len() >= 4 && (0x50..=0x5f).contains(&bytes[0]) && bytes[1..4] == [0x2a, 0x4d, 0x18];
        if bytes.starts_with(GZIP) {
            Some(Compression::Gzip)
        } else if bytes.starts_with(ZSTD) || is_skippable {
            Some(Compression::Zstd)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}

type Source<R> = BufReader<Counted<R>>;

/// A part of the stream: a member of gzip or a frame of zstd, or what is between two of them.
enum State<R: Read> {
    Between(Source<R>),
    Gzip(GzDecoder<Source<R>>),
    Zstd(Source<R>),
    /// After the end, or after an error.
    Ended,
}

/// The content of a compressed stream. Memory is a few blocks, and a window of zstd of at most 128 MiB.
pub struct Decompressed<R: Read> {
    compression: Compression,
    state: State<R>,
    /// Of the frames of zstd, one after the other.
    frames: Box<FrameDecoder>,
    growth: Growth,
    /// Parts that have begun.
    parts: u64,
    read_bytes: u64,
}

impl<R: Read> Decompressed<R> {
    /// The content of `source`, a stream of `source_bytes` bytes.
    pub fn new(source: R, compression: Compression, source_bytes: u64) -> Decompressed<R> {
        let source = BufReader::with_capacity(1 << 16, Counted { inner: source, count: 0 });
        let growth = Growth::of_file(source_bytes);
        let frames = Box::new(FrameDecoder::new());
        Decompressed { compression, state: State::Between(source), frames, growth, parts: 0, read_bytes: 0 }
    }

    /// Fills `buffer`, up to the end of the stream.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, FormatError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.some(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(problem) => return Err(problem.at(self.place())),
            }
        }
        Ok(filled)
    }

    fn place(&self) -> String {
        let (name, part, byte) = (self.compression.name(), self.parts, self.read_bytes);
        format!("{name} stream {part}, near byte {byte}")
    }

    /// At least a byte, unless the stream has ended.
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize, Problem> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(source) => {
                    self.state = self.begin(source)?;
                    if matches!(self.state, State::Ended) {
                        return Ok(0);
                    }
                }
                State::Gzip(mut decoder) => {
                    let result = decoder.read(buffer);
                    self.read_bytes = position(decoder.get_ref());
                    match result.map_err(|error| broken(&error))? {
                        0 => self.state = State::Between(decoder.into_inner()),
                        count => {
                            self.state = State::Gzip(decoder);
                            return self.held(count);
                        }
                    }
                }
                State::Zstd(mut source) => {
                    let result = self.frame_bytes(&mut source, buffer);
                    self.read_bytes = position(&source);
                    match result? {
                        0 => self.state = State::Between(source),
                        count => {
                            self.state = State::Zstd(source);
                            return self.held(count);
                        }
                    }
                }
            }
        }
    }

    fn held(&mut self, count: usize) -> Result<usize, Problem> {
        self.growth.add(count as u64)?;
        Ok(count)
    }

    /// The part that begins here, or the end.
    fn begin(&mut self, mut source: Source<R>) -> Result<State<R>, Problem> {
        let next = source.fill_buf().map_err(|error| broken(&error))?;
        if next.is_empty() {
            return Ok(State::Ended);
        }
        // Some writers fill up to a block of a tape with zeros.
        if self.parts > 0 && self.compression == Compression::Gzip && next[0] == 0 {
            return rest_is_zero(source).map(|()| State::Ended);
        }
        self.read_bytes = position(&source);
        self.parts += 1;
        match self.compression {
            Compression::Gzip => Ok(State::Gzip(GzDecoder::new(source))),
            Compression::Zstd => self.begin_frame(source),
        }
    }

    fn begin_frame(&mut self, mut source: Source<R>) -> Result<State<R>, Problem> {
        match self.frames.init(&mut source) {
            Ok(()) => Ok(State::Zstd(source)),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                self.parts -= 1;
                let skipped = io::copy(&mut (&mut source).take(length.into()), &mut io::sink());
                match skipped.map_err(|error| broken(&error))? {
                    count if count == u64::from(length) => Ok(State::Between(source)),
                    _ => Err(Problem::Truncated("a frame that is skipped")),
                }
            }
            Err(error) => Err(broken_frame(&error)),
        }
    }

    /// The next bytes of a frame; none after its end.
    fn frame_bytes(&mut self, source: &mut Source<R>, buffer: &mut [u8]) -> Result<usize, Problem> {
        let frames = &mut self.frames;
        while frames.can_collect() == 0 && !frames.is_finished() {
            let decoded = frames.decode_blocks(&mut *source, BlockDecodingStrategy::UptoBlocks(1));
            decoded.map_err(|error| broken_frame(&error))?;
        }
        let count = frames.read(buffer).map_err(|error| broken(&error))?;
        if count == 0
            && let (Some(expected), Some(found)) = (frames.get_checksum_from_data(), frames.get_calculated_checksum())
            && expected != found
        {
            return Err(Problem::damaged("a frame has another checksum than it says"));
        }
        Ok(count)
    }
}

/// Bytes that were taken from the source.
fn position<R: Read>(source: &Source<R>) -> u64 {
    source.get_ref().count - source.buffer().len() as u64
}

fn rest_is_zero<R: Read>(mut source: Source<R>) -> Result<(), Problem> {
    loop {
        let next = source.fill_buf().map_err(|error| broken(&error))?;
        let count = next.len();
        if count == 0 {
            return Ok(());
        }
        if next.iter().any(|byte| *byte != 0) {
            return Err(Problem::damaged("bytes that belong to no member follow"));
        }
        source.consume(count);
    }
}

fn broken(error: &io::Error) -> Problem {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Problem::Truncated("compressed data");
    }
    Problem::damaged(error.to_string())
}

fn broken_frame(error: &FrameDecoderError) -> Problem {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<io::Error>()
            && inner.kind() == io::ErrorKind::UnexpectedEof
        {
            return Problem::Truncated("compressed data");
        }
        cause = inner.source();
    }
    if let FrameDecoderError::WindowSizeTooBig { requested, max } = error {
        return Problem::TooLarge { what: "the window of a frame", bytes: *requested, limit_bytes: *max };
    }
    Problem::damaged(error.to_string())
}
