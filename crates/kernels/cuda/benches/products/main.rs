//! Speed of products in blocks on a GPU of compute capability 9.0, of every tile next to cuBLASLt in turns, after a
//! comparison of bits: those of `mat_mul_blocks.cu` with the CPU's, and those of `mat_mul_wgmma.cu` and
//! `mat_mul_wgmma_turns.cu` with them. The code is made where NVRTC is, and measured where a GPU is:
//!
//! ```text
//! PLEACH_CUDA=FOLDER cargo bench -p cuda --bench products -- pack CODE
//! cargo bench -p cuda --bench products -- run CODE [CUBLAS_FOLDER]
//! ```
//!
//! `soft` compares the bits on the GPU in software, and measures nothing.

mod bits;
mod kernels;
mod measure;
mod memory;
mod shapes;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu::Driver;
use nvidia::driver::Library;
use nvidia::{Search, cublaslt};

/// Why the program ends.
pub type Failed = Box<dyn Error>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pack", folder] => kernels::pack(Path::new(folder)),
        ["soft"] => soft(),
        ["run", folder] => run(Path::new(folder), Search::default()),
        ["run", folder, cublas] => run(Path::new(folder), Search::with([PathBuf::from(cublas)])),
        _ => Err("use `pack CODE`, `soft` or `run CODE [CUBLAS_FOLDER]`".into()),
    }
}

fn run(folder: &Path, search: Search) -> Result<(), Failed> {
    let library = Library::open(&Search::default())?;
    let gpu = library.open(0)?;
    let facts = gpu.facts().clone();
    println!("{}, compute capability {}, {} SMs", facts.name, facts.capability, facts.multiprocessors);
    bits::compare_with_cpu(&gpu, folder)?;
    let kernels = kernels::Kernels::load(&gpu, |name| kernels::packed(folder, name))?;
    let peer = cublaslt::Library::open(&search).map_err(Failed::from);
    let peer = peer.and_then(|library| {
        println!("cuBLASLt {}", library.version());
        Ok(cublaslt::Handle::open(Arc::new(library), Arc::clone(&gpu))?)
    });
    if let Err(error) = &peer {
        println!("without cuBLASLt: {error}");
    }
    let memory = memory::Memory::allocate(&gpu, memory::LARGE)?;
    let bench = measure::Bench { gpu, kernels, peer: peer.ok(), memory };
    for shape in shapes::EDGES {
        bench.compare(shape)?;
    }
    for shape in shapes::SHAPES {
        bench.measure(shape)?;
    }
    Ok(())
}

/// Compares bits on the GPU in software.
fn soft() -> Result<(), Failed> {
    let gpu = softgpu::SoftDriver::new(1, softgpu::Settings::default()).open(0)?;
    let kernels = kernels::Kernels::load(&gpu, kernels::portable)?;
    let memory = memory::Memory::allocate(&gpu, memory::SMALL)?;
    let bench = measure::Bench { gpu, kernels, peer: None, memory };
    for shape in shapes::EDGES {
        println!("{shape}");
        bench.compare(shape)?;
    }
    Ok(())
}
