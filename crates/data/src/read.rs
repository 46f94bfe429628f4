//! Text from files.

use std::fs;
use std::path::{Path, PathBuf};

use files::{InputError, InputKind};

use crate::corpus::Document;
use crate::error::DataError;
use crate::json_lines;

/// Endings of the files that are read from a folder; one that is named itself may end as it likes.
const TEXT_ENDINGS: &[&str] = &[
    "txt", "text", "md", "rst", "tex", "org", "adoc", "jsonl", "ndjson", "rs", "py", "c", "h", "cc", "cpp", "hpp",
    "cu", "cuh", "go", "java", "kt", "swift", "js", "ts", "rb", "sh", "pl", "lua", "hs", "ml", "scala", "jl", "r",
    "sql", "html", "css", "toml", "yaml", "yml", "xml",
];

/// The file at `path`, or every text file in the folder `path` and below, sorted by path; hidden files and folders are left out. A file is a
/// document; of JSON lines (`*.jsonl`, `*.ndjson`) every line is one.
///
/// # Errors
/// What cannot be read, is not UTF-8, or holds nothing.
pub fn read(path: &Path) -> Result<Vec<Document>, DataError> {
    let files = if path.is_dir() { files_below(path)? } else { vec![path.to_path_buf()] };
    let mut documents = Vec::with_capacity(files.len());
    for file in files {
        let text = text_file(&file)?;
        if ends_with_one_of(&file, &["jsonl", "ndjson"]) {
            documents.extend(json_lines::documents(&file, &text)?);
        } else {
            // A byte order mark is no text.
            let text = text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text);
            documents.push(Document { name: file.display().to_string(), text });
        }
    }
    documents.retain(|document| !document.text.is_empty());
    if documents.is_empty() { Err(DataError::Empty(path.to_path_buf())) } else { Ok(documents) }
}

/// What the file `path` says.
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

fn ends_with_one_of(file: &Path, endings: &[&str]) -> bool {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut folders = vec![folder.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let unreadable = |reason| DataError::Unreadable { path: folder.clone(), reason };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            // Links are not followed: a link to a folder above would never end.
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && ends_with_one_of(&entry.path(), TEXT_ENDINGS) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
