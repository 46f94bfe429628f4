//! Code for a GPU from the sources of kernels, compiled once and kept on the disk by a hash of everything that decides it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use device::DeviceError;
use gpu::{Capability, ModuleImage};
use xxhash_rust::xxh3::xxh3_128;

use crate::kernels::{SOURCES, Source};

/// Options of every compilation. They are part of the numerics: multiply-adds are fused where a kernel says so and nowhere else,
/// divisions and square roots are rounded to nearest, and subnormal numbers stay.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Code that a driver loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// PTX, which the driver compiles.
    Ptx(String),
    /// A CUBIN for one architecture.
    Cubin(Vec<u8>),
}

impl Code {
    /// As [`gpu::Gpu::load`] takes it.
    pub fn image(&self) -> ModuleImage<'_> {
        match self {
            Code::Ptx(text) => ModuleImage::Ptx(text),
            Code::Cubin(bytes) => ModuleImage::Cubin(bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Code::Ptx(text) => text.as_bytes(),
            Code::Cubin(bytes) => bytes,
        }
    }
}

/// Compiles CUDA C++.
pub trait Compiler {
    /// Everything about the compiler that may change its output: name, version, form of the output.
    fn identity(&self) -> String;

    /// Compiles `text`, which includes no file, with `options` for GPUs of `capability`; `name` is for messages.
    ///
    /// # Errors
    /// The compiler's log.
    fn compile(&self, name: &str, text: &str, options: &[&str], capability: Capability) -> Result<Code, DeviceError>;
}

/// The code of one source.
#[derive(Clone, Debug)]
pub struct CompiledSource {
    /// The source.
    pub source: Source,
    /// Its code.
    pub code: Code,
}

/// A folder with the code of earlier compilations.
#[derive(Clone, Debug)]
pub struct CodeFolder {
    folder: PathBuf,
}

impl CodeFolder {
    /// The folder, which is made when the first code is kept.
    pub fn new(folder: &Path) -> CodeFolder {
        CodeFolder { folder: folder.into() }
    }

    /// The code of all sources for GPUs of `capability`: read where it is there, compiled and kept where it is not.
    ///
    /// # Errors
    /// The compiler's, and those of the file system, by name.
    pub fn all(&self, compiler: &dyn Compiler, capability: Capability) -> Result<Vec<CompiledSource>, DeviceError> {
        SOURCES
            .iter()
            .map(|source| Ok(CompiledSource { source: *source, code: self.code(compiler, source, capability)? }))
            .collect()
    }

    /// The code of one source.
    ///
    /// # Errors
    /// As [`CodeFolder::all`].
    pub fn code(&self, compiler: &dyn Compiler, source: &Source, capability: Capability) -> Result<Code, DeviceError> {
        let text = source.whole();
        let key = key(&compiler.identity(), &text, capability);
        let ends = [format!("{}-{key:032x}.ptx", source.name), format!("{}-{key:032x}.cubin", source.name)];
        let [ptx, cubin] = ends.map(|end| self.folder.join(end));
        if let Some(kept) = kept(&ptx)? {
            if let Ok(text) = String::from_utf8(kept) {
                return Ok(Code::Ptx(text));
            }
        }
        if let Some(kept) = kept(&cubin)? {
            return Ok(Code::Cubin(kept));
        }
        let code = compiler.compile(&format!("{}.cu", source.name), &text, OPTIONS, capability)?;
        let path = match code {
            Code::Ptx(_) => ptx,
            Code::Cubin(_) => cubin,
        };
        self.keep(&path, code.bytes())?;
        Ok(code)
    }

    /// Writes a file that is whole or not there: other processes read while this one writes.
    fn keep(&self, path: &Path, bytes: &[u8]) -> Result<(), DeviceError> {
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        let kept = fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&partial, sealed(bytes)))
            .and_then(|()| fs::rename(&partial, path));
        kept.map_err(|cause| file_error("keep", path, cause))
    }
}

/// What decides the code of a source.
fn key(compiler: &str, text: &str, capability: Capability) -> u128 {
    let options = OPTIONS.join(" ");
    xxh3_128([compiler, &options, &capability.to_string(), text].join("\0").as_bytes())
}

/// The bytes behind their hash.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    [&xxh3_128(bytes).to_le_bytes(), bytes].concat()
}

/// The bytes of a kept file; none where there is no file, or one whose hash is wrong.
fn kept(path: &Path) -> Result<Option<Vec<u8>>, DeviceError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(file_error("read", path, cause)),
    };
    let whole = bytes.split_first_chunk().filter(|(hash, code)| u128::from_le_bytes(**hash) == xxh3_128(code));
    Ok(whole.map(|(_, code)| code.to_vec()))
}

fn file_error(verb: &str, path: &Path, cause: std::io::Error) -> DeviceError {
    DeviceError::Accelerator {
        what: format!("cannot {verb} compiled kernels in {}", path.display()),
        cause: cause.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NINE: Capability = Capability { major: 9, minor: 0 };

    /// Counts its compilations.
    struct Counting {
        calls: Cell<usize>,
        version: &'static str,
    }

    impl Compiler for Counting {
        fn identity(&self) -> String {
            self.version.into()
        }

        fn compile(&self, name: &str, _: &str, _: &[&str], capability: Capability) -> Result<Code, DeviceError> {
            self.calls.set(self.calls.get() + 1);
            Ok(Code::Ptx(format!("{name} for {capability}")))
        }
    }

    #[test]
    fn code_is_compiled_once_for_each_compiler_and_capability_and_again_where_a_file_is_damaged() {
        let folder = std::env::temp_dir().join(format!("pleach-code-{}", std::process::id()));
        let cache = CodeFolder::new(&folder);
        let one = Counting { calls: Cell::new(0), version: "1" };
        let source = &SOURCES[0];
        let expected = Code::Ptx(format!("{}.cu for sm_90", source.name));
        assert_eq!([(); 2].map(|()| cache.code(&one, source, NINE).expect("compiled")), [expected.clone(), expected]);
        assert_eq!(one.calls.get(), 1);
        let ten = Capability { major: 10, minor: 0 };
        cache.code(&one, source, ten).expect("compiled");
        let two = Counting { calls: Cell::new(0), version: "2" };
        cache.code(&two, source, NINE).expect("compiled");
        assert_eq!((one.calls.get(), two.calls.get()), (2, 1));
        for file in fs::read_dir(&folder).expect("a folder") {
            let path = file.expect("a file").path();
            let mut bytes = fs::read(&path).expect("bytes");
            *bytes.last_mut().expect("not empty") ^= 1;
            fs::write(&path, bytes).expect("written");
        }
        cache.code(&one, source, NINE).expect("compiled again");
        assert_eq!(one.calls.get(), 3);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let cache = CodeFolder::new(Path::new("/proc/no-such-place"));
        let compiler = Counting { calls: Cell::new(0), version: "1" };
        let error = cache.code(&compiler, &SOURCES[0], NINE).expect_err("refused").to_string();
        assert!(error.starts_with("cannot keep compiled kernels in /proc/no-such-place/"), "{error}");
    }
}
