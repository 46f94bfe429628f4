//! `pleach doctor`: the hardware of this machine, the features in use and the missing ones.

mod accelerators;
mod cores;
mod launcher;
mod libraries;
mod machine;
pub mod mpi_library;
mod nvidia_libraries;
mod report;
#[cfg(test)]
mod tests;

use std::path::Path;

use machine::{Machine, Measured};
use mpi_library::MpiLibrary;
use nvidia_libraries::NvidiaLibraries;
use run::failure::Failure;

use crate::arguments::DoctorArguments;
use crate::arguments::format::Format;
use crate::screen::output::print;

/// Looks at the machine, measures it for some tenths of a second, and prints.
///
/// # Errors
/// Output that cannot be written.
pub fn doctor(arguments: &DoctorArguments) -> Result<(), Failure> {
    let environment = run::process_group::place::variable_of_launch;
    let machine = Machine::below(Path::new("/"), &environment);
    let measured = Measured::on(machine.cores.usable);
    let mpi = MpiLibrary::of_process(&environment);
    let nvidia = NvidiaLibraries::of_process(&environment);
    let text = match arguments.format() {
        Format::Text => report::text(&machine, &measured, &mpi, &nvidia),
        Format::Json => {
            report::json(&machine, &measured, &mpi, &nvidia).map_err(|error| Failure::Work(error.to_string()))?
        }
    };
    print(&text)
}
