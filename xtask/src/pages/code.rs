//! The code that a page vouches for, as a hash.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::git::Git;
use super::table::Page;
use crate::repository::Repository;
use crate::rust_code::product_code;

/// The hash of every file that a page vouches for.
///
/// Of Rust files, comments, layout and tests do not count; other files count whole. Paths do not count either: a file
/// that moves without a change computes what it computed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    files: BTreeMap<String, u64>,
}

impl Code {
    /// The code in the working tree.
    pub fn of(page: &Page, repository: &Repository) -> Code {
        let files = repository.files.iter().filter(|file| page.vouches_for_file(&file.path));
        Code { files: files.map(|file| (file.path.clone(), hash_of(&file.path, file.text.as_deref()))).collect() }
    }

    /// The code as of `commit`.
    ///
    /// # Errors
    /// A commit that the clone does not have.
    pub fn at(page: &Page, git: &Git, commit: &str) -> Result<Code, String> {
        let files = git.files_at(commit, page.files)?;
        let of_page = files.into_iter().filter(|(path, _)| page.vouches_for_file(path));
        let hashes = of_page.map(|(path, bytes)| {
            let hash = hash_of(&path, std::str::from_utf8(&bytes).ok());
            (path, hash)
        });
        Ok(Code { files: hashes.collect() })
    }

    /// 16 hexadecimal digits.
    pub fn hash(&self) -> String {
        let mut hashes: Vec<u64> = self.files.values().copied().collect();
        hashes.sort_unstable();
        let mut hasher = Xxh3::new();
        for hash in hashes {
            hasher.update(&hash.to_le_bytes());
        }
        format!("{:016x}", hasher.digest())
    }

    /// Paths of files whose code is not the same in `other`, also those that only one of the two has.
    pub fn changed(&self, other: &Code) -> Vec<String> {
        let paths: BTreeSet<&String> = self.files.keys().chain(other.files.keys()).collect();
        paths.into_iter().filter(|path| self.files.get(*path) != other.files.get(*path)).cloned().collect()
    }

    /// Entries of the page's table without a file.
    pub fn missing(page: &Page, repository: &Repository) -> Vec<&'static str> {
        let is_there = |entry: &str| repository.files.iter().any(|file| Page::covers(entry, &file.path));
        page.files.iter().copied().filter(|entry| !is_there(entry)).collect()
    }
}

/// A file that is not text counts by its path alone; no page vouches for one today.
fn hash_of(path: &str, text: Option<&str>) -> u64 {
    match text {
        Some(text) if path.ends_with(".rs") => xxh3_64(product_code(text).as_bytes()),
        Some(text) => xxh3_64(text.as_bytes()),
        None => xxh3_64(path.as_bytes()),
    }
}
