//! A library in this process, and its symbols.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use crate::search::{Found, Search};
use crate::table::Symbol;

/// A library that is wanted: its name for readers, its files, and the remedy where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name for readers.
    pub title: &'static str,
    /// The names of its file, the preferred first.
    pub files: &'static [&'static str],
    /// The version that has all functions of the table.
    pub needs: &'static str,
    /// Where it comes from.
    pub remedy: &'static str,
}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// No file.
    #[error("{title} is missing: {file} is not in {places}; {remedy}")]
    Missing {
        /// The library.
        title: &'static str,
        /// The preferred file.
        file: &'static str,
        /// The places that were searched.
        places: String,
        /// Where it comes from.
        remedy: &'static str,
    },
    /// The system's loader refuses it.
    #[error("{path} cannot be opened as {title}: {reason}; {remedy}")]
    Open {
        /// The library.
        title: &'static str,
        /// Its file.
        path: PathBuf,
        /// The loader's reason.
        reason: String,
        /// Where another one comes from.
        remedy: &'static str,
    },
    /// A library without a function of the table.
    #[error("{path} is too old for pleach: it has no {symbol}; it needs {title} {needs}: {remedy}")]
    Symbol {
        /// The library.
        title: &'static str,
        /// Its file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
        /// The version that has it.
        needs: &'static str,
        /// Where it comes from.
        remedy: &'static str,
    },
    /// A library that is there and says that it is too old, or does not say.
    #[error("{path} is {title} {version}; pleach needs {needs}: {remedy}")]
    Version {
        /// The library.
        title: &'static str,
        /// Its file.
        path: PathBuf,
        /// Its version, or why there is none.
        version: String,
        /// The version that is enough.
        needs: &'static str,
        /// Where it comes from.
        remedy: &'static str,
    },
}

impl LibraryError {
    /// Where the library comes from, or another one.
    pub fn remedy(&self) -> &'static str {
        match self {
            LibraryError::Missing { remedy, .. }
            | LibraryError::Open { remedy, .. }
            | LibraryError::Symbol { remedy, .. }
            | LibraryError::Version { remedy, .. } => remedy,
        }
    }
}

/// A library that is open. It stays in the process: NVIDIA's start threads and register functions for its end.
pub(crate) struct Opened {
    wanted: Wanted,
    path: PathBuf,
    loaded: std::mem::ManuallyDrop<Loaded>,
}

impl Opened {
    /// Opens the first candidate that the loader accepts.
    pub(crate) fn find(wanted: Wanted, search: &Search) -> Result<Opened, LibraryError> {
        let mut first_refusal = None;
        for found in search.candidates(wanted.files) {
            match (open(found.path(), RTLD_LOCAL), &found) {
                (Ok(loaded), _) => {
                    let path = found.path().to_path_buf();
                    return Ok(Opened { wanted, path, loaded: std::mem::ManuallyDrop::new(loaded) });
                }
                (Err(reason), Found::File(path)) => {
                    let path = path.clone();
                    first_refusal.get_or_insert(LibraryError::Open {
                        title: wanted.title,
                        path,
                        reason,
                        remedy: wanted.remedy,
                    });
                }
                (Err(_), Found::Name(_)) => {}
            }
        }
        let (title, remedy) = (wanted.title, wanted.remedy);
        let file = wanted.files.first().copied().unwrap_or_default();
        Err(first_refusal.unwrap_or(LibraryError::Missing { title, file, places: search.describe(), remedy }))
    }

    /// Its file, or its name where the loader has found it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a function.
    pub(crate) fn symbol(&self, symbol: &'static str) -> Result<Symbol, LibraryError> {
        // SAFETY: only the address is taken; the table gives it its type.
        let found = unsafe { self.loaded.get::<Option<NonNull<c_void>>>(symbol.as_bytes()) };
        found.ok().and_then(|found| *found).map(Symbol).ok_or_else(|| self.lacks(symbol))
    }

    /// The error for a function that is not there.
    pub(crate) fn lacks(&self, symbol: &'static str) -> LibraryError {
        let Wanted { title, needs, remedy, files: _ } = self.wanted;
        LibraryError::Symbol { title, path: self.path.clone(), symbol, needs, remedy }
    }

    /// The error for a version that is too old.
    pub(crate) fn too_old(&self, version: String) -> LibraryError {
        let Wanted { title, needs, remedy, files: _ } = self.wanted;
        LibraryError::Version { title, path: self.path.clone(), version, needs, remedy }
    }
}

/// Loads a file whose symbols another library looks up by its name, as NVRTC does with its built-in functions.
pub(crate) fn preload(path: &Path) -> Result<(), String> {
    open(path, RTLD_GLOBAL).map(|loaded| {
        // It stays, for its user does not hold it.
        std::mem::forget(loaded);
    })
}

fn open(path: &Path, visibility: std::ffi::c_int) -> Result<Loaded, String> {
    // SAFETY: the library is NVIDIA's by its name or by the user's word; its initialisers run as in any program that
    // links it.
    let opened = unsafe { Loaded::open(Some(path), RTLD_NOW | visibility) };
    // The loader's own words are the source.
    opened.map_err(|error| std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
}
