//! NVIDIA's driver, libcuda.so.1, as the traits of crate `gpu`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use gpu::Driver;
//! use nvidia::Search;
//! use nvidia::driver::Library;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let driver: Arc<dyn Driver> = Arc::new(Library::open(&Search::default())?);
//! let gpu = driver.open(0)?;
//! println!("{}", gpu.facts().name);
//! # Ok(())
//! # }
//! ```

mod arguments;
mod calls;
mod constants;
mod context;
mod cubin;
mod functions;
mod kernel_graph;
mod library;
mod open_gpu;
mod owned;
mod status;
mod structs;

pub use calls::environment::{ask_for_hardware_queues, shared_hardware_queues};
pub use library::{Library, OLDEST_CAPABILITY, OLDEST_CUDA};

pub(crate) fn header() -> crate::header::Header {
    use functions::{Code, Devices, EarlierElapsed, Elapsed, Entry, Graphs, Lookup, Memory, Parameters, Streams};
    let tables = [
        Entry::declarations(),
        Lookup::declarations(),
        Devices::declarations(),
        Memory::declarations(),
        Streams::declarations(),
        Elapsed::declarations(),
        EarlierElapsed::declarations(),
        Code::declarations(),
        Parameters::declarations(),
        Graphs::declarations(),
    ];
    crate::header::Header {
        includes: &["cuda.h", "cudaTypedefs.h"],
        functions: tables.concat(),
        constants: constants::all(),
        layouts: structs::layouts(),
    }
}
