//! Compiled code on a disk, found by a hash of all that decides it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sync::lock;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::compiler::{Code, CompileError, Compiled, Compiler, Source};
use super::target::Target;

/// First bytes of a file; the number is that of its layout.
const MAGIC: &[u8; 8] = b"pleachk1";
/// Magic, hash of the rest, length of the log.
const HEAD_BYTES: usize = 24;

/// A folder of compiled code. Any number of processes may share it: files appear whole, by renaming.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Code that the folder did not take, by the path of its file.
    in_memory: Arc<Mutex<BTreeMap<PathBuf, Compiled>>>,
}

impl Cache {
    /// A cache in a folder, which is made when it is first written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), in_memory: Arc::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the code need not be compiled, if its file is whole.
    pub fn has(&self, version: (u32, u32), source: &Source, target: &Target, options: &[&str]) -> bool {
        let path = self.folder.join(file_name(version, source, target, options));
        path.is_file() || lock(&self.in_memory).contains_key(&path)
    }

    /// Writes a file to the folder and removes it.
    ///
    /// # Errors
    /// A folder that takes no file.
    pub fn try_to_write(&self) -> io::Result<()> {
        let path = self.folder.join("probe");
        self.write(&path, b"")?;
        // Another process that tries may have removed it.
        let _ = fs::remove_file(path);
        Ok(())
    }

    /// The code from the cache, or else from `compiler`, kept from then on. A damaged file counts as none, and where
    /// the folder takes no file, the code is kept in the memory of this cache and compiled again at every start.
    ///
    /// # Errors
    /// The compiler's.
    pub fn compile(
        &self,
        compiler: &Compiler,
        source: &Source,
        target: &Target,
        options: &[&str],
    ) -> Result<Compiled, CompileError> {
        let path = self.folder.join(file_name(compiler.version(), source, target, options));
        if let Some(compiled) = fs::read(&path).ok().and_then(|bytes| decode(&bytes, target)) {
            return Ok(compiled);
        }
        if let Some(compiled) = lock(&self.in_memory).get(&path) {
            return Ok(compiled.clone());
        }
        let compiled = compiler.compile(source, target, options)?;
        // A run needs the code, and not its file: a disk that is full or read-only stops no run here.
        if self.write(&path, &encode(&compiled)).is_err() {
            lock(&self.in_memory).insert(path, compiled.clone());
        }
        Ok(compiled)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // A thread writes one file at a time.
        let writer = format!("{}-{:?}.partial", std::process::id(), std::thread::current().id());
        let partial = path.with_extension(writer);
        let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written
    }
}

/// A hash of all that decides code: the compiler's version, the text, the target and the options.
pub fn fingerprint(version: (u32, u32), source: &Source, target: &Target, options: &[&str]) -> u128 {
    let mut hash = Xxh3::new();
    // With lengths, so that no two lists of texts are the same bytes.
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(&format!("{}.{}", version.0, version.1));
    add(&target.to_string());
    add(&source.name);
    add(&source.text);
    add(&source.headers.len().to_string());
    for (name, text) in &source.headers {
        add(name);
        add(text);
    }
    for option in options {
        add(option);
    }
    hash.digest128()
}

/// The name of a file: its fingerprint, and the form of the code.
fn file_name(version: (u32, u32), source: &Source, target: &Target, options: &[&str]) -> String {
    let form = match target {
        Target::Ptx(_) => "ptx",
        Target::Cubin(_) => "cubin",
    };
    format!("{:032x}.{form}", fingerprint(version, source, target, options))
}

fn encode(compiled: &Compiled) -> Vec<u8> {
    let (log, code) = (compiled.log.as_bytes(), compiled.code.bytes());
    let mut rest = Vec::with_capacity(HEAD_BYTES + log.len() + code.len());
    rest.extend_from_slice(&(log.len() as u64).to_le_bytes());
    rest.extend_from_slice(log);
    rest.extend_from_slice(code);
    [&MAGIC[..], &xxh3_64(&rest).to_le_bytes(), &rest].concat()
}

fn decode(bytes: &[u8], target: &Target) -> Option<Compiled> {
    let (hash, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    if xxh3_64(rest).to_le_bytes() != *hash {
        return None;
    }
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let (log, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    let code = match target {
        Target::Ptx(_) => Code::Ptx(String::from_utf8(code.to_vec()).ok()?),
        Target::Cubin(_) => Code::Cubin(code.to_vec()),
    };
    Some(Compiled { code, log: String::from_utf8(log.to_vec()).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_decides_the_code_decides_the_name() {
        let source = Source::new("a.cu", "text").header("b.h", "header");
        let (ptx, cubin): (Target, Target) = (Target::Ptx("90a".into()), Target::Cubin("90a".into()));
        let mut names = vec![
            file_name((13, 0), &source, &ptx, &["-a"]),
            file_name((13, 1), &source, &ptx, &["-a"]),
            file_name((13, 0), &source, &cubin, &["-a"]),
            file_name((13, 0), &source, &ptx, &["-a", "-b"]),
            file_name((13, 0), &source, &ptx, &["-a-b"]),
            file_name((13, 0), &Source::new("a.cu", "text"), &ptx, &["-a"]),
            file_name((13, 0), &Source::new("a.cu", "text").header("b.h", "headers"), &ptx, &["-a"]),
            file_name((13, 0), &Source::new("a.cu", "texts").header("b.h", "header"), &ptx, &["-a"]),
            file_name((13, 0), &Source::new("b.cu", "text").header("b.h", "header"), &ptx, &["-a"]),
        ];
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(file_name((13, 0), &source, &ptx, &["-a"]), file_name((13, 0), &source.clone(), &ptx, &["-a"]));
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let compiled = Compiled { code: Code::Ptx(".version 9.0".into()), log: "a warning".into() };
        let target = Target::Ptx("90".into());
        let bytes = encode(&compiled);
        assert_eq!(decode(&bytes, &target), Some(compiled));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x10;
            assert_eq!(decode(&damaged, &target), None, "byte {index}");
            assert_eq!(decode(&bytes[..index], &target), None, "{index} bytes");
        }
    }
}
