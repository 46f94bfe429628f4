//! Text into a token file: once, on all cores, in memory that does not grow with the text, and resumed where it was
//! ended.
//!
//! One thread reads records, all cores tokenize them in batches, and the caller's thread writes the batches in their
//! order. Tokens and the beginnings of documents grow in two files next to the token file, and a third says how far
//! they belong to whole batches ([`spool`]); a killed run resumes there. In the end the three become the token
//! file.

mod key;
mod spool;
mod train;
mod workers;

use std::path::{Path, PathBuf};

use config::{OddFiles, SourceSpec};

pub use key::Key;
pub use train::train;

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::file_names::{files_at, is_token_file};
use crate::megatron;
use crate::odd_files::OddFilesRule;
use crate::records::{Records, of_all_files};
use crate::token_file::TokenFile;
use crate::tokenizer::Tokenizer;
use spool::{LeftoverFiles, Spool};
use workers::Batch;

/// How far the work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files of the sources, and those that are done.
    pub files: u64,
    pub files_done: u64,
    /// Bytes of text that were tokenized, without those of an earlier, ended run.
    pub text_bytes: u64,
    /// Documents that were written.
    pub documents: u64,
    /// Tokens that were written.
    pub tokens: u64,
    /// Tokens that an earlier, ended run has left.
    pub tokens_before: u64,
}

/// The work of an earlier call for the same content that was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Its parts are as they were written, and the work continues after them.
    Continued {
        /// The file in which the work continues, counted from 0, and its path; `None` after the last.
        input: u64,
        path: Option<PathBuf>,
        /// Files of the sources.
        files: u64,
        /// Records of that file that are done.
        records: u64,
        /// Documents and tokens that were written.
        documents: u64,
        tokens: u64,
    },
    /// Its parts have other bytes than were written, and the work begins again.
    Changed {
        /// The token file that they belong to.
        out: PathBuf,
    },
}

/// Hears of the work, now and then.
pub trait Listener {
    /// An earlier call has left parts. Called once, before the work.
    fn earlier(&self, _: &Earlier) {}

    /// A file of a folder is left out. Called once for each, with the reason.
    fn skipped(&self, _: &DataError) {}

    /// The work has come so far.
    fn progress(&self, progress: Progress);
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug)]
pub struct NoListener;

impl Listener for NoListener {
    fn progress(&self, _: Progress) {}
}

/// A token file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Documents with tokens.
    pub documents: u64,
    pub tokens: u64,
    /// Hash of the file's content.
    pub hash: u64,
}

/// One file of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Text, JSON lines or a table, with the column.
    Records(PathBuf, Option<String>),
    TokenFile(PathBuf),
    /// Either file of a pair of Megatron-LM.
    Pair(PathBuf),
}

impl Input {
    /// The files of `source`, in their order, without those that `odd_files` leaves out.
    pub(crate) fn of(source: &SourceSpec, odd_files: &OddFilesRule) -> Result<Vec<Input>, DataError> {
        if source.is_tokens() {
            let path = source.path.clone();
            return Ok(vec![if is_token_file(&path) { Input::TokenFile(path) } else { Input::Pair(path) }]);
        }
        let files =
            odd_files.readable(files_at(&source.path)?, |file| Records::open(file, source.column.as_deref()))?;
        if files.is_empty() {
            return Err(DataError::Empty(source.path.clone()));
        }
        Ok(files.into_iter().map(|file| Input::Records(file, source.column.clone())).collect())
    }

    fn path(&self) -> &Path {
        match self {
            Input::Records(path, _) | Input::TokenFile(path) | Input::Pair(path) => path,
        }
    }

    /// Whether it has columns; a pipe may have some, which is read once, and later.
    ///
    /// # Errors
    /// A file that is not read, by its beginning: what is wrong with all sources is known before the first of them is
    /// tokenized.
    fn has_columns(&self) -> Result<bool, DataError> {
        match self {
            Input::Records(path, column) if path.is_file() || !path.exists() => {
                let mut records = Records::open(path, column.as_deref())?;
                let has_columns = records.has_columns();
                if has_columns {
                    // A first record without the field.
                    records.next_record()?;
                }
                Ok(has_columns)
            }
            Input::Records(..) => Ok(true),
            Input::TokenFile(_) | Input::Pair(_) => Ok(false),
        }
    }

    /// Documents that have tokens already, opened; `None` for text.
    fn corpus(&self) -> Result<Option<Corpus>, DataError> {
        match self {
            Input::Records(..) => Ok(None),
            Input::TokenFile(path) => TokenFile::open(path).map(|file| Some(file.corpus)),
            Input::Pair(path) => megatron::open(path).map(Some),
        }
    }
}

/// Where the work continues: a file of the sources, and a record in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) input: u64,
    pub(crate) record: u64,
}

/// Writes `sources`, one after the other, as tokens of `tokenizer` into the token file `out`, without the files that
/// `odd_files` leaves out. Files that an
/// earlier call for the same content has left next to it are used where they have the bytes that were written; those of
/// another one are removed.
///
/// # Errors
/// The first record that cannot be used, with its place; a file that cannot be written; another process that does the
/// same.
pub fn tokenize(
    sources: &[SourceSpec],
    odd_files: OddFiles,
    tokenizer: &Tokenizer,
    out: &Path,
    listener: &dyn Listener,
) -> Result<Written, DataError> {
    let inputs = inputs(sources, &OddFilesRule { odd_files, skipped: &|error| listener.skipped(error) })?;
    let key = Key::of(&inputs, sources, tokenizer)?;
    write(&inputs, tokenizer, key, out, listener)
}

pub(crate) fn inputs(sources: &[SourceSpec], odd_files: &OddFilesRule) -> Result<Vec<Input>, DataError> {
    let (mut inputs, mut errors) = (vec![], vec![]);
    let mut has_columns = false;
    for source in sources {
        let of_source = Input::of(source, odd_files).and_then(|own| {
            let mut checked = own.iter().try_for_each(|input| {
                has_columns |= input.has_columns()?;
                Ok(())
            });
            checked = checked.map_err(|error| of_all_files(error, records_of(&own)));
            checked.map(|()| own)
        });
        match of_source {
            Ok(own) => inputs.extend(own),
            Err(error) => errors.push(error),
        }
    }
    // Of several inputs, some may have columns.
    let named = sources.iter().find_map(|source| Some((source.path.clone(), source.column.clone()?)));
    if let (Some((path, column)), false, true) = (named, has_columns, errors.is_empty()) {
        errors.push(DataError::NoColumns { path, column });
    }
    DataError::all(errors).map(|()| inputs)
}

/// Tokenizes as [`tokenize`] does, content whose key is known.
pub(crate) fn write(
    inputs: &[Input],
    tokenizer: &Tokenizer,
    key: Key,
    out: &Path,
    listener: &dyn Listener,
) -> Result<Written, DataError> {
    let piped = workers::piped(inputs)?;
    let mut spool = Spool::open(out, key, tokenizer)?;
    let mut progress = Progress {
        files: inputs.len() as u64,
        documents: spool.documents(),
        tokens: spool.tokens(),
        tokens_before: spool.tokens(),
        ..Progress::default()
    };
    let start = spool.position();
    if let Some(earlier) = earlier(&spool, inputs, out) {
        listener.earlier(&earlier);
    }
    let done = workers::run(inputs, piped, tokenizer, start, &mut |batch: Batch| {
        progress.text_bytes += batch.text_bytes;
        spool.append(&batch)?;
        progress.files_done = batch.end.input;
        (progress.documents, progress.tokens) = (spool.documents(), spool.tokens());
        listener.progress(progress);
        Ok(())
    });
    let done = done.and_then(|()| if spool.tokens() > 0 { Ok(()) } else { Err(DataError::Empty(first_path(inputs))) });
    match done {
        Ok(()) => spool.finish(tokenizer),
        // There may be room again later.
        Err(error @ DataError::Unwritable { .. }) => Err(error),
        // A command that is refused leaves nothing.
        Err(error) => {
            spool.remove();
            Err(of_all_files(error, records_of(inputs)))
        }
    }
}

/// The files of records among `inputs`, with their columns.
fn records_of(inputs: &[Input]) -> impl Iterator<Item = (&Path, Option<&str>)> {
    inputs.iter().filter_map(|input| match input {
        Input::Records(path, column) => Some((path.as_path(), column.as_deref())),
        Input::TokenFile(_) | Input::Pair(_) => None,
    })
}

/// The work of an earlier call, where there is any.
fn earlier(spool: &Spool, inputs: &[Input], out: &Path) -> Option<Earlier> {
    let Position { input, record } = spool.position();
    match spool.left_behind() {
        LeftoverFiles::Nothing => None,
        LeftoverFiles::Changed => Some(Earlier::Changed { out: out.to_path_buf() }),
        LeftoverFiles::Whole => Some(Earlier::Continued {
            input,
            path: inputs.get(input as usize).map(|input| input.path().to_path_buf()),
            files: inputs.len() as u64,
            records: record,
            documents: spool.documents(),
            tokens: spool.tokens(),
        }),
    }
}

fn first_path(inputs: &[Input]) -> PathBuf {
    inputs.first().map(|input| input.path().to_path_buf()).unwrap_or_default()
}
