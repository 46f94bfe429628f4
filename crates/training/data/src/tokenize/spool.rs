//! Tokens on their way into a token file: two files that grow, and a line that says how far they are whole.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::workers::Batch;
use super::{Key, Position, Written};
use crate::error::DataError;
use crate::token_file::assemble;
use crate::tokenizer::Tokenizer;
use crate::tokens::TokenType;

/// Bytes of tokens, and time, after which what was written is put on the disk.
const COMMIT_BYTES: u64 = 64 << 20;
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Endings of the three files.
const MARK: &str = "mark";
const PART_TOKENS: &str = "part-tokens";
const PART_ENDS: &str = "part-ends";

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// How far the files are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// The content that the tokens are made of.
    key: String,
    /// Where the work continues.
    input: u64,
    record: u64,
    documents: u64,
    tokens: u64,
    /// Tokens of the document that continues.
    open: u64,
    /// XXH3 of both files, as far as they are whole.
    tokens_xxh3: u64,
    ends_xxh3: u64,
}

/// The files that an earlier process has left for the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftoverFiles {
    /// None, or those of other content.
    Nothing,
    /// As they were written: the work continues after them.
    Whole,
    /// Other bytes than were written: the work begins again.
    Changed,
}

/// The three files next to a token file that is being made. One process at a time has them.
pub(crate) struct Spool {
    out: PathBuf,
    mark: Mark,
    mark_file: File,
    tokens: BufWriter<File>,
    /// Where each document ends, in tokens: 64 bits each.
    ends: BufWriter<File>,
    /// Of all that was appended to either.
    hashes: [Xxh3Default; 2],
    left_behind: LeftoverFiles,
    width_bytes: u64,
    committed_tokens: u64,
    /// `None` before the first time: a beginning is on the disk as soon as there is one.
    committed: Option<Instant>,
}

fn sibling(out: &Path, what: &str) -> PathBuf {
    let name = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    out.with_file_name(format!(".{name}.{what}"))
}

impl Spool {
    /// The files next to `out`, as an earlier process has left them for the same `key`, or new ones. Those of an
    /// earlier process are read once, and used only where their hashes are those of the mark.
    pub(crate) fn open(out: &Path, key: Key, tokenizer: &Tokenizer) -> Result<Spool, DataError> {
        let unwritable = |reason| DataError::Unwritable { path: out.to_path_buf(), reason };
        let mut mark_file = files::open_to_change(&sibling(out, MARK)).map_err(unwritable)?;
        if flock(&mark_file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DataError::Busy(out.to_path_buf()));
        }
        let (tokens, ends) = opened_parts(out, &mark_file).map_err(unwritable)?;
        let width_bytes = TokenType::of_vocabulary(tokenizer.vocabulary()).width_bytes() as u64;
        let mut left_behind = LeftoverFiles::Nothing;
        let mut beginning =
            (Mark { key: key.to_string(), ..Mark::default() }, [Xxh3Default::new(), Xxh3Default::new()]);
        if let Some(mark) = read_mark(&mut mark_file).filter(|mark| mark.key == key.to_string()) {
            let lengths = [mark.tokens * width_bytes, mark.documents * 8];
            let [of_tokens, of_ends] = [hash_of(&tokens, lengths[0]), hash_of(&ends, lengths[1])];
            let hashes = [of_tokens.map_err(unwritable)?, of_ends.map_err(unwritable)?];
            let found = hashes.each_ref().map(|hash| hash.as_ref().map(Xxh3Default::digest));
            left_behind = LeftoverFiles::Changed;
            if found == [Some(mark.tokens_xxh3), Some(mark.ends_xxh3)]
                && let [Some(of_tokens), Some(of_ends)] = hashes
            {
                (left_behind, beginning) = (LeftoverFiles::Whole, (mark, [of_tokens, of_ends]));
            }
        }
        let (mark, hashes) = beginning;
        let mut spool = Spool {
            out: out.to_path_buf(),
            committed_tokens: mark.tokens,
            mark,
            mark_file,
            tokens: BufWriter::with_capacity(1 << 20, tokens),
            ends: BufWriter::new(ends),
            hashes,
            left_behind,
            width_bytes,
            committed: None,
        };
        spool.cut().map_err(unwritable)?;
        Ok(spool)
    }

    /// The files that were there when it was opened.
    pub(crate) fn left_behind(&self) -> LeftoverFiles {
        self.left_behind
    }

    /// Cuts what was written after the mark.
    fn cut(&mut self) -> std::io::Result<()> {
        for (file, bytes) in [
            (self.tokens.get_mut(), self.mark.tokens * self.width_bytes),
            (self.ends.get_mut(), self.mark.documents * 8),
        ] {
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
        }
        Ok(())
    }

    /// Where the work continues.
    pub(crate) fn position(&self) -> Position {
        Position { input: self.mark.input, record: self.mark.record }
    }

    pub(crate) fn documents(&self) -> u64 {
        self.mark.documents
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.mark.tokens
    }

    /// Appends a batch; now and then everything is put on the disk.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), DataError> {
        self.add(batch).map_err(|reason| DataError::Unwritable { path: self.out.clone(), reason })
    }

    fn add(&mut self, batch: &Batch) -> std::io::Result<()> {
        let [of_tokens, of_ends] = &mut self.hashes;
        self.tokens.write_all(&batch.tokens)?;
        of_tokens.update(&batch.tokens);
        for (tokens, ends) in &batch.records {
            self.mark.tokens += tokens;
            self.mark.open += tokens;
            // Documents without tokens are left out.
            if *ends && self.mark.open > 0 {
                let end = self.mark.tokens.to_le_bytes();
                self.ends.write_all(&end)?;
                of_ends.update(&end);
                self.mark.documents += 1;
                self.mark.open = 0;
            }
        }
        (self.mark.input, self.mark.record) = (batch.end.input, batch.end.record);
        let bytes = (self.mark.tokens - self.committed_tokens) * self.width_bytes;
        if bytes >= COMMIT_BYTES || self.committed.is_none_or(|at| at.elapsed() >= COMMIT_TIME) {
            self.commit()?;
        }
        Ok(())
    }

    /// First the content, then the mark that it is there.
    fn commit(&mut self) -> std::io::Result<()> {
        self.tokens.flush()?;
        self.tokens.get_ref().sync_data()?;
        self.ends.flush()?;
        self.ends.get_ref().sync_data()?;
        let [of_tokens, of_ends] = &self.hashes;
        (self.mark.tokens_xxh3, self.mark.ends_xxh3) = (of_tokens.digest(), of_ends.digest());
        write_mark(&mut self.mark_file, &self.mark)?;
        (self.committed_tokens, self.committed) = (self.mark.tokens, Some(Instant::now()));
        Ok(())
    }

    /// Makes the token file of all that was appended, and removes the files next to it.
    pub(crate) fn finish(mut self, tokenizer: &Tokenizer) -> Result<Written, DataError> {
        let out = self.out.clone();
        let unwritable = |reason| DataError::Unwritable { path: out.clone(), reason };
        self.commit().map_err(unwritable)?;
        let (documents, tokens) = (self.mark.documents, self.mark.tokens);
        let [mut tokens_file, mut ends_file] = [&self.tokens, &self.ends].map(|writer| writer.get_ref());
        tokens_file.rewind().and_then(|()| ends_file.rewind()).map_err(unwritable)?;
        let hash = assemble(&self.out, tokenizer, (documents, tokens), BufReader::new(ends_file), tokens_file)?;
        self.remove();
        Ok(Written { documents, tokens, hash })
    }

    /// Removes the files.
    pub(crate) fn remove(self) {
        for what in [PART_TOKENS, PART_ENDS, MARK] {
            // A file that is left is removed or used by the next process that makes this file.
            let _ = fs::remove_file(sibling(&self.out, what));
        }
    }
}

/// The files of tokens and of ends next to `out`. Where one of them cannot be opened and `mark` is new, nothing is
/// left.
fn opened_parts(out: &Path, mark: &File) -> std::io::Result<(File, File)> {
    let opened = |what| files::open_to_change(&sibling(out, what));
    let parts = opened(PART_TOKENS).and_then(|tokens| Ok((tokens, opened(PART_ENDS)?)));
    if parts.is_err() && mark.metadata().is_ok_and(|found| found.len() == 0) {
        for path in [PART_TOKENS, PART_ENDS, MARK].map(|what| sibling(out, what)) {
            // One with content is not of this process.
            let is_new = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.len() == 0);
            if is_new {
                let _ = fs::remove_file(path);
            }
        }
    }
    parts
}

/// The hash of the first `bytes` of a file; `None` where it has fewer.
fn hash_of(mut file: &File, bytes: u64) -> std::io::Result<Option<Xxh3Default>> {
    if file.metadata()?.len() < bytes {
        return Ok(None);
    }
    file.rewind()?;
    let (mut hash, mut left, mut block) = (Xxh3Default::new(), bytes, vec![0; BLOCK_BYTES]);
    while left > 0 {
        let block = &mut block[..(BLOCK_BYTES as u64).min(left) as usize];
        file.read_exact(block)?;
        hash.update(block);
        left -= block.len() as u64;
    }
    Ok(Some(hash))
}

/// A hash in front shows a line that was not written whole.
fn read_mark(file: &mut File) -> Option<Mark> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    let (hash, line) = text.lines().next()?.split_once(' ')?;
    if u64::from_str_radix(hash, 16).ok()? != xxh3_64(line.as_bytes()) {
        return None;
    }
    serde_json::from_str(line).ok()
}

fn write_mark(file: &mut File, mark: &Mark) -> std::io::Result<()> {
    let line = serde_json::to_string(mark)?;
    file.rewind()?;
    writeln!(file, "{:016x} {line}", xxh3_64(line.as_bytes()))?;
    file.sync_data()
}
