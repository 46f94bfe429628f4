//! Compiled kernels in one compressed text, which a release of the program carries: a machine that has it needs no
//! compiler.
//!
//! An archive is [`MAGIC`], a hash of the rest, and a text that is deflated: the compiler's version, then for each
//! source and target a line `TARGET NAME FINGERPRINT BYTES` and that number of bytes of PTX. The fingerprint is that of
//! the source with its options; code of other sources than this program's is refused.

use std::io::{Read, Write};

use cuda::code::{CompiledSource, compile, compile_afresh, fingerprint_of, in_parallel};
use cuda::kernels::{SOURCES, Source};
use device::DeviceError;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use gpu::Capability;
use gpu_rank::COLLECTIVES;
use nvidia::nvrtc::{Cache, Code, Compiler, Target};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::gpu_code::{CodeForm, CodeOrigin, GpuCode, KernelCode};

/// First bytes of an archive; the number is that of its layout.
const MAGIC: &[u8; 8] = b"pleachg1";

/// The GPUs that an archive has code for; newer ones run the code of older ones.
pub const ARCHIVED_CAPABILITIES: [Capability; 4] = [
    Capability { major: 8, minor: 0 },
    Capability { major: 9, minor: 0 },
    Capability { major: 10, minor: 0 },
    Capability { major: 12, minor: 0 },
];

/// Why an archive has no code for this program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArchiveError {
    /// Other bytes, or bytes that have changed.
    #[error("the archive of compiled kernels is damaged: {0}; make it again with tools/release.sh")]
    Damaged(&'static str),
    /// It was made from other kernels.
    #[error(
        "the archive of compiled kernels was made from another {source_file}.cu than this program's, or with other \
         options: its fingerprint is {found}, expected {expected}; make it again with tools/release.sh"
    )]
    OtherSource {
        /// The name of the source.
        source_file: String,
        /// In the archive.
        found: String,
        /// Of this program.
        expected: String,
    },
    /// It lacks a source.
    #[error(
        "the archive of compiled kernels has no {source_file}.cu for {target}; make it again with tools/release.sh"
    )]
    Missing {
        /// The name of the source.
        source_file: String,
        /// The target.
        target: String,
    },
}

/// The code of a source for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Archived {
    target: String,
    name: String,
    fingerprint: String,
    ptx: String,
}

/// Kernels that were compiled before. Where they are, no compiler is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedKernels {
    compiler: (u32, u32),
    entries: Vec<Archived>,
}

/// Every source of kernels.
fn sources() -> impl Iterator<Item = Source> {
    SOURCES.iter().copied().chain([COLLECTIVES])
}

/// PTX that only GPUs of `capability` run where some kernel needs it, otherwise that of later ones too.
fn archived_target(capability: Capability) -> Target {
    let [common, specific] = [Target::ptx(capability), Target::specific_ptx(capability)];
    let is_needed = sources().any(|source| source.is_for(&specific) && !source.is_for(&common));
    if is_needed { specific } else { common }
}

impl ArchivedKernels {
    /// Compiles all kernels to PTX for GPUs of each of `capabilities`, and of later ones where no kernel needs
    /// instructions of that capability alone. Code is taken from `cache` and kept there; without one all is compiled.
    ///
    /// # Errors
    /// The compiler's.
    pub fn compile(
        compiler: &Compiler,
        cache: Option<&Cache>,
        capabilities: &[Capability],
    ) -> Result<ArchivedKernels, DeviceError> {
        let of = |target: Target| sources().filter(move |source| source.is_for(&target));
        let all: Vec<(Target, Source)> = capabilities
            .iter()
            .map(|capability| archived_target(*capability))
            .flat_map(|target| of(target.clone()).map(move |source| (target.clone(), source)))
            .collect();
        let entries = in_parallel(&all, |(target, source)| {
            let compiled = match cache {
                Some(cache) => compile(compiler, cache, source, target)?,
                None => compile_afresh(compiler, source, target)?,
            };
            Ok(Archived {
                target: target.to_string(),
                name: source.name.into(),
                fingerprint: hex(fingerprint_of(compiler.version(), source, target)),
                ptx: compiled.code.ptx().unwrap_or_default().into(),
            })
        })?;
        Ok(ArchivedKernels { compiler: compiler.version(), entries })
    }

    /// The bytes of the archive.
    ///
    /// # Errors
    /// Memory that is used up.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let mut encoder = DeflateEncoder::new(vec![], Compression::best());
        writeln!(encoder, "NVRTC {} {}", self.compiler.0, self.compiler.1)?;
        for Archived { target, name, fingerprint, ptx } in &self.entries {
            writeln!(encoder, "{target} {name} {fingerprint} {}", ptx.len())?;
            encoder.write_all(ptx.as_bytes())?;
        }
        let rest = encoder.finish()?;
        Ok([&MAGIC[..], &xxh3_64(&rest).to_le_bytes(), &rest].concat())
    }

    /// Reads an archive, and compares it with the kernels of this program.
    ///
    /// # Errors
    /// See [`ArchiveError`].
    pub fn read(bytes: &[u8]) -> Result<ArchivedKernels, ArchiveError> {
        let damaged = ArchiveError::Damaged;
        let rest = bytes.strip_prefix(MAGIC).ok_or(damaged("it begins with other bytes"))?;
        let (hash, rest) = rest.split_first_chunk::<8>().ok_or(damaged("it ends early"))?;
        if xxh3_64(rest).to_le_bytes() != *hash {
            return Err(damaged("its hash is another one"));
        }
        let mut text = String::new();
        DeflateDecoder::new(rest).read_to_string(&mut text).map_err(|_| damaged("it does not unpack"))?;
        let (compiler, mut rest) = text.split_once('\n').ok_or(damaged("it has no first line"))?;
        let version = compiler.strip_prefix("NVRTC ").and_then(|version| version.split_once(' '));
        let version = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let mut archive =
            ArchivedKernels { compiler: version.ok_or(damaged("it names no compiler"))?, entries: vec![] };
        while let Some((line, after)) = rest.split_once('\n') {
            let [target, name, fingerprint, bytes] = *line.split(' ').collect::<Vec<_>>() else {
                return Err(damaged("a line is not one of code"));
            };
            let ptx = bytes.parse().ok().and_then(|bytes| after.split_at_checked(bytes));
            let (ptx, next) = ptx.ok_or(damaged("code ends early"))?;
            let [target, name, fingerprint, ptx] = [target, name, fingerprint, ptx].map(String::from);
            archive.entries.push(Archived { target, name, fingerprint, ptx });
            rest = next;
        }
        archive.check_sources()?;
        Ok(archive)
    }

    /// Compares every entry with the source of this program.
    fn check_sources(&self) -> Result<(), ArchiveError> {
        for entry in &self.entries {
            let source = sources().find(|source| source.name == entry.name);
            let target: Option<Target> = entry.target.parse().ok();
            let expected = source.zip(target).map(|(source, target)| fingerprint_of(self.compiler, &source, &target));
            let expected = expected.map_or("none".into(), hex);
            if expected != entry.fingerprint {
                let (source_file, found) = (entry.name.clone(), entry.fingerprint.clone());
                return Err(ArchiveError::OtherSource { source_file, found, expected });
            }
        }
        Ok(())
    }

    /// The targets, oldest first, with the bytes of their PTX.
    pub fn targets(&self) -> Vec<(&str, usize)> {
        let mut targets: Vec<(&str, usize)> = vec![];
        for entry in &self.entries {
            match targets.iter_mut().find(|(target, _)| *target == entry.target) {
                Some((_, bytes)) => *bytes += entry.ptx.len(),
                None => targets.push((&entry.target, entry.ptx.len())),
            }
        }
        targets
    }

    /// The version of the compiler, as 13.0.
    pub fn compiler(&self) -> String {
        format!("{}.{}", self.compiler.0, self.compiler.1)
    }

    /// The newest target that a GPU of `capability` runs.
    pub(crate) fn target(&self, capability: Capability) -> Option<Target> {
        let minors = |major: u32| (0..=9).rev().map(move |minor| Capability { major, minor });
        let all = (0..=capability.major).rev().flat_map(minors).filter(|older| *older <= capability);
        let mut targets = std::iter::once(Target::specific_ptx(capability)).chain(all.map(Target::ptx));
        targets.find(|target| self.entries.iter().any(|entry| entry.target == target.to_string()))
    }

    fn compiled(&self, target: &str, source: Source) -> Result<CompiledSource, DeviceError> {
        let entry = self.entries.iter().find(|entry| entry.target == target && entry.name == source.name);
        let entry = entry.ok_or_else(|| DeviceError::Accelerator {
            what: format!("compiled kernels for {target}"),
            cause: Box::new(ArchiveError::Missing { source_file: source.name.into(), target: target.into() }),
        })?;
        Ok(CompiledSource { source, code: Code::Ptx(entry.ptx.clone()) })
    }
}

fn hex(fingerprint: u128) -> String {
    format!("{fingerprint:032x}")
}

impl KernelCode for ArchivedKernels {
    fn origin(&self, _capability: Capability) -> CodeOrigin {
        CodeOrigin { compiler: self.compiler, form: CodeForm::Ptx }
    }

    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        let target = self.target(capability).ok_or_else(|| DeviceError::Accelerator {
            what: format!("compiled kernels for {capability}"),
            cause: "the archive has none for it or an older GPU; make it again with tools/release.sh".into(),
        })?;
        let of_target = SOURCES.iter().filter(|source| source.is_for(&target));
        let target = target.to_string();
        let operations = of_target.map(|source| self.compiled(&target, *source)).collect::<Result<_, _>>()?;
        Ok(GpuCode { operations, collectives: self.compiled(&target, COLLECTIVES)? })
    }
}

#[cfg(test)]
impl ArchivedKernels {
    /// The bytes of an archive without code.
    pub fn of_no_target() -> Vec<u8> {
        ArchivedKernels { compiler: (13, 0), entries: vec![] }.to_bytes().expect("bytes")
    }
}

#[cfg(test)]
mod tests {
    use cuda::kernels::Instructions;

    use super::*;

    /// An archive with a text for each source in the place of its PTX.
    fn archive() -> ArchivedKernels {
        let compiler = (13, 0);
        let entry = |target: &Target, source: Source| Archived {
            target: target.to_string(),
            name: source.name.into(),
            fingerprint: hex(fingerprint_of(compiler, &source, target)),
            ptx: format!("// {target} {}\n", source.name),
        };
        let targets = [8, 9].map(|major| Target::ptx(Capability { major, minor: 0 }));
        let of_target = |target| sources().filter(move |source| source.is_for(target));
        let entries = targets.iter().flat_map(|target| of_target(target).map(|source| entry(target, source))).collect();
        ArchivedKernels { compiler, entries }
    }

    fn refusal(archive: &ArchivedKernels) -> String {
        ArchivedKernels::read(&archive.to_bytes().expect("bytes")).expect_err("refused").to_string()
    }

    #[test]
    fn an_archive_is_read_as_it_was_written() {
        let bytes = archive().to_bytes().expect("bytes");
        let read = ArchivedKernels::read(&bytes).expect("an archive");
        assert_eq!(read, archive());
        assert_eq!(
            read.targets().into_iter().map(|(target, _)| target).collect::<Vec<_>>(),
            ["compute_80", "compute_90"]
        );
        assert_eq!(read.compiler(), "13.0");
        let first = |major, minor| {
            let code = read.code(Capability { major, minor }).expect("code");
            let common = SOURCES.iter().filter(|source| source.instructions == Instructions::Common);
            assert_eq!(code.operations.len(), common.count());
            code.collectives.code.ptx().unwrap_or_default().split(' ').nth(1).map(String::from)
        };
        // A GPU runs the newest code that is not newer than itself.
        assert_eq!(first(8, 9), Some("compute_80".into()));
        assert_eq!(first(9, 0), Some("compute_90".into()));
        assert_eq!(first(12, 0), Some("compute_90".into()));
        let error = read.code(Capability { major: 7, minor: 5 }).expect_err("too old").to_string();
        assert!(error.contains("sm_75"), "{error}");
    }

    #[test]
    fn an_archive_of_other_sources_is_refused() {
        let mut other = archive();
        let rotary = other.entries.iter_mut().find(|entry| entry.name == "rotary").expect("an entry of rotary");
        rotary.fingerprint = hex(7);
        let text = refusal(&other);
        assert!(text.contains("was made from another rotary.cu than this program's"), "{text}");
        assert!(text.contains("fingerprint is 00000000000000000000000000000007, expected"), "{text}");
        let mut unknown = archive();
        unknown.entries[0].name = "removed".into();
        assert!(refusal(&unknown).contains("another removed.cu"));
        // Another compiler makes other fingerprints.
        let newer = ArchivedKernels { compiler: (13, 1), ..archive() };
        assert!(refusal(&newer).contains("was made from another"));
        let mut lacking = archive();
        lacking.entries.retain(|entry| entry.name != "norm");
        let read = ArchivedKernels::read(&lacking.to_bytes().expect("bytes")).expect("sources that are there");
        let error = read.code(Capability { major: 9, minor: 0 }).expect_err("no norm").to_string();
        assert!(error.contains("no norm.cu for compute_90"), "{error}");
    }

    #[test]
    fn a_damaged_archive_is_refused() {
        let bytes = archive().to_bytes().expect("bytes");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(matches!(ArchivedKernels::read(&damaged), Err(ArchiveError::Damaged(_))), "byte {at}");
        }
        for end in 0..bytes.len() {
            assert!(matches!(ArchivedKernels::read(&bytes[..end]), Err(ArchiveError::Damaged(_))), "{end} bytes");
        }
    }
}
