//! Code for a GPU from the sources of kernels, compiled once and kept on the disk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::DeviceError;
use gpu::Capability;
use nvidia::nvrtc::{Cache, Code, Compiler, Source as CompilerSource, Target, fingerprint};

use sync::{into_inner, lock};

use crate::kernels::{SOURCES, Source};

/// Options of every compilation. They are part of the numerics: multiply-adds are fused where a kernel says so and
/// nowhere else, divisions and square roots are rounded to nearest, and subnormal numbers stay.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// The code of one source.
#[derive(Clone, Debug)]
pub struct CompiledSource {
    pub source: Source,
    pub code: Code,
}

/// The code of all sources for a target: from the cache, or else from `compiler`.
///
/// # Errors
/// The compiler's, by the name of the source.
pub fn compile_all(compiler: &Compiler, cache: &Cache, target: &Target) -> Result<Vec<CompiledSource>, DeviceError> {
    let sources: Vec<&Source> = SOURCES.iter().filter(|source| source.is_for(target)).collect();
    in_parallel(&sources, |source| compile(compiler, cache, source, target))
}

/// The results of `work` for each of `items`, in their order, by as many threads as there are cores: NVRTC compiles
/// programs of several threads at the same time.
///
/// # Errors
/// The error of the first item that fails.
pub fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, DeviceError> + Sync,
) -> Result<Vec<R>, DeviceError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R, DeviceError>>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    lock(&results)[index] = Some(result);
                }
            });
        }
    });
    into_inner(results).into_iter().flatten().collect()
}

/// The code of one source.
///
/// # Errors
/// The errors of [`compile_all`].
pub fn compile(
    compiler: &Compiler,
    cache: &Cache,
    source: &Source,
    target: &Target,
) -> Result<CompiledSource, DeviceError> {
    let compiled = cache.compile(compiler, &text_of(source), target, OPTIONS).map_err(|cause| failed(source, cause))?;
    Ok(CompiledSource { source: *source, code: compiled.code })
}

/// Sources among those for a target and `others` whose code `cache` does not have.
pub fn to_compile(compiler: &Compiler, cache: &Cache, others: &[Source], target: &Target) -> Vec<Source> {
    let sources = SOURCES.iter().chain(others).filter(|source| source.is_for(target));
    let is_missing = |source: &&Source| !cache.has(compiler.version(), &text_of(source), target, OPTIONS);
    sources.filter(is_missing).copied().collect()
}

/// The code of one source, which nothing keeps.
///
/// # Errors
/// The compiler's.
pub fn compile_afresh(compiler: &Compiler, source: &Source, target: &Target) -> Result<CompiledSource, DeviceError> {
    let compiled = compiler.compile(&text_of(source), target, OPTIONS).map_err(|cause| failed(source, cause))?;
    Ok(CompiledSource { source: *source, code: compiled.code })
}

/// A hash of all that decides the code of a source by a compiler of `version`.
pub fn fingerprint_of(version: (u32, u32), source: &Source, target: &Target) -> u128 {
    fingerprint(version, &text_of(source), target, OPTIONS)
}

fn text_of(source: &Source) -> CompilerSource {
    CompilerSource::new(format!("{}.cu", source.name), source.whole())
}

fn failed(source: &Source, cause: impl std::error::Error + Send + Sync + 'static) -> DeviceError {
    DeviceError::Accelerator { what: format!("compile {}.cu", source.name), cause: Box::new(cause) }
}

/// The target of a GPU that is at hand: a CUBIN, which the driver loads as it is.
pub fn target_of(capability: Capability) -> Target {
    let Capability { major, minor } = capability;
    // From 9.0 on an architecture has instructions that only GPUs of exactly its capability have.
    let specific = if major >= 9 { "a" } else { "" };
    Target::Cubin(format!("{major}{minor}{specific}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_gpu_is_its_own_architecture() {
        let of = |major, minor| target_of(Capability { major, minor }).to_string();
        assert_eq!([of(8, 0), of(8, 9), of(9, 0), of(12, 0)], ["sm_80", "sm_89", "sm_90a", "sm_120a"]);
    }
}
