//! The library of MPI of a process among others: the same one in all of them, and its world that of the launcher.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use comm::processes::MpiEndpoint;
use config::{EngineChoice, RunConfig, TransportChoice};
use launcher::Launcher;
use mpi::{Abi, Found, Library, Surroundings, ThreadLevel, find, loader, mpiexec_of};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::process_group::member::GroupMember;
use crate::process_group::place::Place;

/// Whether a run of several processes moves its messages over MPI.
pub fn is_wanted(config: &RunConfig) -> bool {
    let RunConfig { run, .. } = config;
    match (run.engine, run.transport) {
        (EngineChoice::Auto | EngineChoice::Processes, TransportChoice::Mpi) => true,
        (EngineChoice::Threads, _) => false,
        (_, TransportChoice::Auto | TransportChoice::SharedMemory | TransportChoice::Tcp) => false,
    }
}

/// Opens the library that fits the launcher, compares it with those of the other processes, and initialises it within
/// `deadline`. All processes of the run do so.
///
/// # Errors
/// No library, different ones, one that does not belong to the launcher, and one that does not return in time.
pub fn open(member: &GroupMember, deadline: Duration) -> Result<Arc<MpiEndpoint>, Failure> {
    let opened = library(member).and_then(|(found, library)| {
        if member.is_first() {
            // Some libraries end the process where they do not find their launcher.
            let Place { processes, .. } = member.place;
            tell(&doubt(&library, member.place.launcher(), processes).unwrap_or_default());
        }
        let ended = || member.control.failure().map(|failure| failure.to_string());
        let opened = MpiEndpoint::open(found.path, ThreadLevel::Funneled, deadline, &ended);
        let endpoint = opened.map_err(|error| Failure::Work(error.to_string()))?;
        let world = World { process: endpoint.process(), processes: endpoint.processes() };
        let own = World { process: member.place.process, processes: member.place.processes };
        let refusal = refusal(&library, world, own, member.place.launcher());
        refusal.map_or(Ok(Arc::new(endpoint)), |refusal| Err(Failure::Work(refusal)))
    });
    opened.inspect_err(|failure| member.report(failure))
}

/// The library of this process, once all processes are known to have the same.
fn library(member: &GroupMember) -> Result<(Found, Library), Failure> {
    let environment = |name: &str| std::env::var(name).ok();
    let surroundings = Surroundings::of_process(&environment, loader::folders(Path::new("/"), &environment));
    let opened = find(&surroundings).map_err(|error| Failure::Input(error.to_string())).and_then(|found| {
        let library = Library::open(&found.path).map_err(|error| Failure::Input(error.to_string()))?;
        Ok((found, library))
    });
    // A process that fails here does not keep the others waiting for its part.
    let (found, library) = opened.inspect_err(|failure| member.report(failure))?;
    let own = format!("{} with {}", library.version(), library.abi());
    let all = member.all_gather("libraries of MPI", &own)?;
    let entries = member.control.directory().processes.iter().zip(&all);
    let other = entries.clone().find(|(_, library)| Some(*library) != all.first());
    match (other, all.first()) {
        (Some((entry, other)), Some(first)) => Err(Failure::Work(format!(
            "{} opens {other}, and process 0 {first}; all processes need one library of MPI: use one launcher, or give the same \
             PLEACH_MPI_LIBRARY to all",
            entry.named()
        ))),
        (None, _) | (Some(_), None) => Ok((found, library)),
    }
}

/// A warning where a library is not of the family of the launcher: it may know that launcher all the same.
fn doubt(library: &Library, launcher: Launcher, processes: usize) -> Option<String> {
    let is_open_mpi = library.version().starts_with("Open MPI");
    let fits = match launcher {
        Launcher::OpenMpi => is_open_mpi,
        Launcher::Mpich => !is_open_mpi,
        Launcher::Pleach | Launcher::Torchrun | Launcher::Pmix | Launcher::Slurm | Launcher::Kubernetes => true,
    };
    let mpiexec = mpiexec(library.path(), library.abi());
    let warning = format!(
        "{} at {} may not belong to the launcher, {launcher}; if MPI_Init_thread fails, start the run with `{mpiexec} -n \
         {processes} pleach ...`\n",
        library.version(),
        library.path().display()
    );
    (!fits).then_some(warning)
}

/// A process as MPI or the launcher numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct World {
    process: usize,
    processes: usize,
}

/// Why the world of a library is not that of the launcher; `None` if it is.
fn refusal(library: &Library, world: World, own: World, launcher: Launcher) -> Option<String> {
    let name = format!("{} at {}", library.version(), library.path().display());
    refusal_of(&name, &mpiexec(library.path(), library.abi()), world, own, launcher)
}

fn refusal_of(name: &str, mpiexec: &str, world: World, own: World, launcher: Launcher) -> Option<String> {
    let World { process, processes } = own;
    match world {
        same if same == own => None,
        World { processes: 1, .. } => Some(format!(
            "{name} sees a world of 1 process, and {launcher} started {processes}: the launcher does not belong to the library; \
             start the run with `{mpiexec} -n {processes} pleach ...`, or give the launcher's library in PLEACH_MPI_LIBRARY"
        )),
        World { process: rank, processes: size } => Some(format!(
            "{name} numbers this process {rank} of {size}, and {launcher} {process} of {processes}; unset the variables of the \
             launcher that did not start this process"
        )),
    }
}

/// The program that starts processes of the library at `path`, for messages.
fn mpiexec(path: &Path, abi: Abi) -> String {
    mpiexec_of(path, abi).map_or("the mpiexec of that library".into(), |program| program.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_of_one_is_named() {
        let own = World { process: 3, processes: 4 };
        let of =
            |world| refusal_of("MPICH 4.0.2 at /lib/libmpich.so.12", "/bin/mpiexec", world, own, Launcher::OpenMpi);
        assert_eq!(of(own), None);
        assert_eq!(
            of(World { process: 0, processes: 1 }).as_deref(),
            Some(
                "MPICH 4.0.2 at /lib/libmpich.so.12 sees a world of 1 process, and Open MPI started 4: the launcher does not \
                 belong to the library; start the run with `/bin/mpiexec -n 4 pleach ...`, or give the launcher's library in \
                 PLEACH_MPI_LIBRARY"
            )
        );
        assert_eq!(
            of(World { process: 1, processes: 4 }).as_deref(),
            Some(
                "MPICH 4.0.2 at /lib/libmpich.so.12 numbers this process 1 of 4, and Open MPI 3 of 4; unset the variables of \
                 the launcher that did not start this process"
            )
        );
    }
}
