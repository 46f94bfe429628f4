//! An empty program of MPI: opens the library whose path it is given, initialises it, prints the resident memory of
//! this process in kB, and ends. `docs/clusters.md` compares it with a process of a run.

use std::path::PathBuf;
use std::time::Duration;

use mpi::{Endpoint, ThreadLevel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("give the path of a library of MPI")?.into();
    let deadline = Duration::from_secs(60);
    let endpoint = Endpoint::open(path, ThreadLevel::Funneled, deadline, &|| None)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("process {} of {}, {}: {resident}", endpoint.process(), endpoint.processes(), endpoint.version());
    Ok(endpoint.finish(deadline, &|| None)?)
}
