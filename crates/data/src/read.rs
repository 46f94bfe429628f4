//! Text from files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::corpus::Document;
use crate::error::DataError;

/// The file at `path`, or every file in the folder `path` and below, sorted by path; hidden files and folders are left out.
///
/// # Errors
/// What cannot be read, is not UTF-8, or holds nothing.
pub fn read(path: &Path) -> Result<Vec<Document>, DataError> {
    let files = if path.is_dir() { files_below(path)? } else { vec![path.to_path_buf()] };
    let mut documents = Vec::with_capacity(files.len());
    for file in files {
        let bytes = fs::read(&file).map_err(|reason| DataError::Unreadable { path: file.clone(), reason })?;
        let text = String::from_utf8(bytes)
            .map_err(|error| DataError::NotUtf8 { path: file.clone(), offset: error.utf8_error().valid_up_to() })?;
        documents.push(Document { name: file.display().to_string(), text });
    }
    if documents.iter().all(|document| document.text.is_empty()) {
        return Err(DataError::Empty(path.to_path_buf()));
    }
    Ok(documents)
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
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
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
