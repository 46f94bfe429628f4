//! A compiler that is open.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::calls::Failure;
use super::functions::{COMPILATION, Functions, INVALID_OPTION};
use super::target::Target;
use crate::library::{LibraryError, Opened, Wanted, preload};
use crate::search::Search;

/// The library. Kernels are compiled for Blackwell, too, which NVRTC knows from 12.8 on.
pub(crate) const NVRTC: Wanted = Wanted {
    title: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    needs: "12.8 or later",
    remedy: "install a CUDA toolkit, or `pip install nvidia-cuda-nvrtc`, and give its folder",
};
const OLDEST: (u32, u32) = (12, 8);

/// A text in CUDA C++ with the headers that it includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name in messages.
    pub name: String,
    pub text: String,
    /// Headers: the name between the quotes of `#include`, and the text.
    pub headers: Vec<(String, String)>,
}

impl Source {
    /// A text without headers.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into(), headers: vec![] }
    }

    /// The same text, which may also include `name`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Source {
        self.headers.push((name.into(), text.into()));
        self
    }
}

/// Code for a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// PTX as text.
    Ptx(String),
    Cubin(Vec<u8>),
}

impl Code {
    /// The text, if it is PTX.
    pub fn ptx(&self) -> Option<&str> {
        match self {
            Code::Ptx(text) => Some(text),
            Code::Cubin(_) => None,
        }
    }

    /// The binary or the text, as the driver loads it.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Code::Ptx(text) => text.as_bytes(),
            Code::Cubin(bytes) => bytes,
        }
    }

    /// The image for [`gpu::Gpu::load`].
    pub fn image(&self) -> gpu::ModuleImage<'_> {
        match self {
            Code::Ptx(text) => gpu::ModuleImage::Ptx(text),
            Code::Cubin(bytes) => gpu::ModuleImage::Cubin(bytes),
        }
    }
}

/// Code with the compiler's remarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    pub code: Code,
    /// Warnings and remarks; often empty.
    pub log: String,
}

/// Why a text was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text is at fault, or an option.
    #[error("{name} does not compile for {target} with {options:?}:\n{log}")]
    Source {
        /// The source's name.
        name: String,
        /// Its target.
        target: Target,
        /// The options.
        options: Vec<String>,
        /// The compiler's log, with the lines of its errors.
        log: String,
    },
    /// A zero byte in a text, which C cannot have.
    #[error("{0} has a zero byte; remove it")]
    ZeroByte(String),
    /// A failure of the library.
    #[error("{call} failed on {name}: {text}; look at the log of the compiler: {log:?}")]
    Library {
        /// The source's name.
        name: String,
        /// The function.
        call: &'static str,
        /// The library's text.
        text: String,
        /// The compiler's log.
        log: String,
    },
}

/// NVRTC, open. Any thread may compile at any time.
pub struct Compiler {
    path: PathBuf,
    version: (u32, u32),
    functions: Functions,
}

impl Compiler {
    /// Finds and opens NVRTC with the library of its built-in functions.
    ///
    /// # Errors
    /// A library that is missing or too old.
    pub fn open(search: &Search) -> Result<Compiler, LibraryError> {
        let opened = Opened::find(NVRTC, search)?;
        let functions = Functions::bind(|name| opened.symbol(name.symbol))?;
        let (major, minor) = functions.versions().map_err(|failure| opened.too_old(functions.text(failure.status)))?;
        let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
        if version < OLDEST {
            return Err(opened.too_old(format!("{major}.{minor}")));
        }
        // NVRTC opens this one by its name alone, and the loader does not look next to NVRTC. A library with this name
        // that is in the process already is taken.
        let builtins = opened.path().with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
        if builtins.is_file() {
            preload(&builtins).map_err(|reason| LibraryError::Open {
                title: "the built-in functions of NVRTC",
                path: builtins.clone(),
                reason,
                remedy: NVRTC.remedy,
            })?;
        }
        Ok(Compiler { path: opened.path().to_path_buf(), version, functions })
    }

    /// Its file, or its name where the loader has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version: (13, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The architectures that it compiles for: 90 for 9.0.
    ///
    /// # Errors
    /// A failure of the library, as its text.
    pub fn architectures(&self) -> Result<Vec<u32>, String> {
        let all = self.functions.supported().map_err(|failure| self.functions.text(failure.status))?;
        Ok(all.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
    }

    /// Compiles `source`. `options` are those of `nvrtc`, except the architecture.
    ///
    /// # Errors
    /// A text or an option that the compiler refuses, with its log.
    pub fn compile(&self, source: &Source, target: &Target, options: &[&str]) -> Result<Compiled, CompileError> {
        let (name, text) = (c_text(&source.name, &source.name)?, c_text(&source.name, &source.text)?);
        let mut headers = vec![];
        for (header, text) in &source.headers {
            headers.push((c_text(header, header)?, c_text(header, text)?));
        }
        let architecture = format!("--gpu-architecture={target}");
        let all = std::iter::once(architecture.as_str()).chain(options.iter().copied());
        let all = all.map(|option| c_text(option, option)).collect::<Result<Vec<_>, _>>()?;
        let library = |failure: Failure, log: String| CompileError::Library {
            name: source.name.clone(),
            call: failure.call,
            text: self.functions.text(failure.status),
            log,
        };
        let program =
            self.functions.program(&name, &text, &headers).map_err(|failure| library(failure, String::new()))?;
        let compiled = program.compile(&all);
        let log = program.log().map(|log| String::from_utf8_lossy(&log).trim_end().to_owned()).unwrap_or_default();
        match compiled {
            Ok(()) => {}
            Err(failure) if [COMPILATION, INVALID_OPTION].contains(&failure.status) => {
                let options = options.iter().map(|option| (*option).to_owned()).collect();
                return Err(CompileError::Source { name: source.name.clone(), target: target.clone(), options, log });
            }
            Err(failure) => return Err(library(failure, log)),
        }
        let code = match target {
            Target::Ptx(_) => program.ptx().map(|text| Code::Ptx(String::from_utf8_lossy(&text).into_owned())),
            Target::Cubin(_) => program.cubin().map(Code::Cubin),
        };
        let code = code.map_err(|failure| library(failure, log.clone()))?;
        Ok(Compiled { code, log })
    }
}

fn c_text(name: &str, text: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError::ZeroByte(name.into()))
}
