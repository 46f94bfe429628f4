//! A library of MPI in this process.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_NOW};

use crate::abi::Abi;
use crate::functions::{Calls, Functions};

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// The system's loader refuses it.
    #[error("{path} cannot be opened as a library: {reason}; give another one in PLEACH_MPI_LIBRARY")]
    Open {
        /// The library.
        path: PathBuf,
        /// The loader's reason.
        reason: String,
    },
    /// A library without a function that every library of MPI 3 has.
    #[error("{path} is not a library of MPI 3 or later: it has no {symbol}; give another one in PLEACH_MPI_LIBRARY")]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The function or constant.
        symbol: &'static str,
    },
    /// A library whose handles are not known.
    #[error(
        "{path} has neither the ABI of MPI 5, nor that of MPICH, nor that of Open MPI: it calls itself {version:?}; give \
         another one in PLEACH_MPI_LIBRARY"
    )]
    Abi {
        /// The library.
        path: PathBuf,
        /// Its version, by itself.
        version: String,
    },
}

/// A library that is open, and not initialised.
pub struct Library {
    path: PathBuf,
    abi: Abi,
    version: String,
    pub(crate) calls: Box<dyn Calls>,
}

impl Library {
    /// Opens the library at `path`. It stays in the process.
    ///
    /// # Errors
    /// A file that is not a library of MPI, or one of an unknown ABI.
    pub fn open(path: &Path) -> Result<Library, LibraryError> {
        let refused = |error: libloading::Error| {
            // The loader's own words are the source.
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            LibraryError::Open { path: path.into(), reason }
        };
        // Plugins of some libraries find its symbols only where they are global.
        // SAFETY: the library is one of MPI by its name or by the user's word; its initialisers run as in any program
        // that links it.
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(refused)?;
        let missing = |symbol| LibraryError::Symbol { path: path.into(), symbol };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // SAFETY: only the address of the variable is taken.
        let is_open_mpi = unsafe { loaded.get::<*mut c_void>(b"ompi_mpi_comm_world") }.is_ok();
        let (abi, calls): (Abi, Box<dyn Calls>) = if name.starts_with("libmpi_abi") {
            (Abi::Mpi5, Box::new(Functions::of_mpi5(loaded).map_err(missing)?))
        } else if is_open_mpi {
            (Abi::OpenMpi, Box::new(Functions::of_open_mpi(loaded).map_err(missing)?))
        } else {
            (Abi::Mpich, Box::new(Functions::of_mpich(loaded).map_err(missing)?))
        };
        let version = first_lines(&calls.version());
        let relatives = ["MPICH", "Intel(R) MPI", "MVAPICH"];
        let is_known = match abi {
            Abi::Mpi5 | Abi::OpenMpi => true,
            Abi::Mpich => relatives.iter().any(|relative| version.contains(relative)),
        };
        if !is_known {
            return Err(LibraryError::Abi { path: path.into(), version });
        }
        Ok(Library { path: path.into(), abi, version, calls })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ABI by which its functions are called.
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// Its version, by itself, on one line.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The name and the version within a text of many lines: MPICH prints how it was configured, too.
fn first_lines(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = text.lines().map(words).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    // Open MPI gives one line with package and date after commas.
    let first = match first.split_once(", package:") {
        Some((name, _)) => name.to_owned(),
        None => first,
    };
    first.trim_end_matches(',').replace("MPICH Version: ", "MPICH ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_one_line() {
        let mpich = "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7\nMPICH ABI: 14:2:2\n";
        assert_eq!(first_lines(mpich), "MPICH 4.0.2");
        let open_mpi = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
        assert_eq!(first_lines(open_mpi), "Open MPI v4.1.4");
        let intel = "Intel(R) MPI Library 2021.19 for Linux* OS\n\n";
        assert_eq!(first_lines(intel), "Intel(R) MPI Library 2021.19 for Linux* OS");
        assert_eq!(first_lines(""), "");
    }

    #[test]
    fn a_library_of_something_else_is_refused() {
        let error = Library::open(Path::new("/no/such/libmpi.so.12")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("/no/such/libmpi.so.12 cannot be opened as a library: ")));
        let error = Library::open(Path::new("libc.so.6")).err();
        assert_eq!(error, Some(LibraryError::Symbol { path: "libc.so.6".into(), symbol: "MPI_Init_thread" }));
    }
}
