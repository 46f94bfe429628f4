//! Compiles all kernels for all GPUs into one file, which a release of `pleach` carries. `tools/release.sh` calls it.

use std::path::PathBuf;

use clap::Args;
use nvidia::Search;
use nvidia::nvrtc::Compiler;
use train::{ARCHIVED_CAPABILITIES, ArchivedKernels};

/// Compile all kernels for all GPUs into one file
#[derive(Args)]
pub struct Arguments {
    /// The file to write.
    archive: PathBuf,
    /// The folder of NVRTC.
    #[arg(long)]
    cuda: PathBuf,
}

/// Compiles them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    made(arguments).map(|said| println!("{said}")).map_err(|error| error.to_string())
}

fn made(Arguments { archive, cuda }: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let compiler = Compiler::open(&Search::only([cuda.clone()]))?;
    let kernels = ArchivedKernels::compile(&compiler, None, &ARCHIVED_CAPABILITIES)?;
    let bytes = kernels.to_bytes()?;
    std::fs::write(archive, &bytes).map_err(|error| format!("{} cannot be written: {error}", archive.display()))?;
    let targets = kernels.targets();
    let each: Vec<String> = targets.iter().map(|(target, bytes)| format!("{target} {bytes}")).collect();
    let total: usize = targets.iter().map(|(_, bytes)| bytes).sum();
    Ok(format!(
        "{}: {} bytes of {total} bytes of PTX by NVRTC {} ({})",
        archive.display(),
        bytes.len(),
        kernels.compiler(),
        each.join(", ")
    ))
}
