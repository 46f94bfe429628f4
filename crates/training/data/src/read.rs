//! Whole sources in memory.

use std::path::{Path, PathBuf};

use files::{InputError, InputKind};
use formats::Cell;

use crate::corpus::Corpus;
use crate::document::Document;
use crate::error::DataError;
use crate::file_names::files_at;
use crate::learned_tokens::Learned;
use crate::odd_files::OddFilesRule;
use crate::records::{Record, Records, of_all_files};

/// The documents of a source.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text, to be tokenized.
    Text(Vec<Document>),
    /// Tokens that somebody made before.
    Tokens(Corpus),
}

/// The documents of the file, the folder or the pattern `path`, in the order of its files: a file of text is one
/// document; JSON lines and tables have one in each line or row, in `column`, or in the first of the usual columns.
///
/// # Errors
/// A file that cannot be read or is not UTF-8, no documents, text and tokens in one source.
pub fn read(path: &Path, column: Option<&str>) -> Result<Content, DataError> {
    read_with(path, column, &OddFilesRule::REFUSE)
}

/// Returns the same as [`read`], without the files that `odd_files` leaves out.
///
/// # Errors
/// See [`read`].
pub(crate) fn read_with(path: &Path, column: Option<&str>, odd_files: &OddFilesRule) -> Result<Content, DataError> {
    let files = odd_files.readable(files_at(path)?, |file| Records::open(file, column))?;
    let content = read_files(path, &files, column);
    content.map_err(|error| of_all_files(error, files.iter().map(|file| (file.as_path(), column))))
}

fn read_files(path: &Path, files: &[PathBuf], column: Option<&str>) -> Result<Content, DataError> {
    let mut documents: Vec<Document> = vec![];
    let mut rows: Vec<(String, Learned)> = vec![];
    // Whether the next record continues the document before it.
    let mut continues = false;
    let (mut of_columns, mut has_columns_somewhere) = (0, false);
    for file in files {
        let mut records = Records::open(file, column)?;
        let has_columns = records.has_columns();
        has_columns_somewhere |= has_columns;
        check_size(file, records.plain_bytes())?;
        let mut bytes = 0;
        while let Some(Record { name, content, learned, ends }) = records.next_record()? {
            of_columns += u64::from(has_columns);
            match content {
                Cell::Text(text) => {
                    bytes += text.len() as u64;
                    check_size(file, bytes)?;
                    match documents.last_mut().filter(|_| continues) {
                        Some(document) => document.text.push_str(&text),
                        None => documents.push(Document { name, text }),
                    }
                    continues = !ends;
                }
                Cell::Tokens(tokens) => rows.push((name, Learned { tokens, learned })),
            }
            if !rows.is_empty() && !documents.is_empty() {
                return Err(DataError::TextAndTokens(path.to_path_buf()));
            }
        }
    }
    if let (Some(column), false) = (column, has_columns_somewhere) {
        return Err(DataError::NoColumns { path: path.to_path_buf(), column: column.to_string() });
    }
    documents.retain(|document| !document.text.is_empty());
    rows.retain(|(_, row)| !row.tokens.is_empty());
    match (documents.is_empty(), rows.is_empty()) {
        (true, true) if of_columns > 0 => Err(DataError::NoValues {
            path: path.to_path_buf(),
            records: of_columns,
            column: column.map(str::to_string),
        }),
        (true, true) => Err(DataError::Empty(path.to_path_buf())),
        (_, true) => Ok(Content::Text(documents)),
        (_, false) => Ok(Content::Tokens(Corpus::of_rows(rows))),
    }
}

/// Memory holds all of it.
fn check_size(path: &Path, bytes: u64) -> Result<(), DataError> {
    let kind = InputKind::Text;
    match kind.limit_bytes().filter(|limit| bytes > *limit) {
        None => Ok(()),
        Some(limit_bytes) => {
            let reason = InputError::TooLarge { bytes: None, kind, limit_bytes };
            Err(DataError::Unreadable { path: path.to_path_buf(), reason: reason.into() })
        }
    }
}

/// The text of the file `path`.
///
/// # Errors
/// A file that cannot be read, or is not UTF-8.
pub(crate) fn text_file(path: &Path) -> Result<String, DataError> {
    let unreadable = |error: InputError| DataError::Unreadable { path: path.to_path_buf(), reason: error.into() };
    let bytes = files::read(path, InputKind::Text).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| match files::format_of(error.as_bytes()) {
        Some(format) => DataError::OtherFormat { path: path.to_path_buf(), format },
        None => DataError::NotUtf8 { path: path.to_path_buf(), offset: error.utf8_error().valid_up_to() },
    })
}
