//! Libraries that a run must not use, and the one that `pleach doctor` finds.

use std::path::PathBuf;

use super::libraries::{all, ended, named, said};
use crate::harness::several::{launched, with_keys};

const OVER_MPI: &[&str] = &["run.transport=mpi"];
const OPEN_MPI: &str = "/usr/lib/x86_64-linux-gnu/libmpi.so.40";

fn train() -> Vec<&'static str> {
    [&[env!("CARGO_BIN_EXE_pleach")], &with_keys(&["train"], OVER_MPI)[..]].concat()
}

#[needs::mpi]
#[test]
fn a_launcher_of_another_library_is_named() {
    let (mpich, open_mpi) = (named("MPI 5 of MPICH 5"), named("Debian's Open MPI"));
    let library = mpich.mpiexec.parent().and_then(|bin| bin.parent()).expect("a folder").join("lib/libmpi_abi.so.1");
    for (launcher, library) in [(&mpich, PathBuf::from(OPEN_MPI)), (&open_mpi, library)] {
        let mut command = launcher.command(2, &train());
        let output = ended(command.env("PLEACH_MPI_LIBRARY", &library).spawn().expect("mpiexec"));
        let text = said(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(" may not belong to the launcher, "), "{}: {text}", launcher.name);
        // MPICH 5 ends the process under a launcher that it does not know; Open MPI continues alone.
        let is_named = ["sees a world of 1 process, and", "MPI_Init_thread"].iter().any(|name| text.contains(name));
        assert!(is_named && text.contains("start the run with `"), "{}: {text}", launcher.name);
    }
}

#[needs::mpi]
#[test]
fn pleach_launch_is_no_launcher_of_mpi() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["launch", "--nproc", "2", "--"])
        .args(with_keys(&["train"], OVER_MPI))
        .env("PLEACH_MPI_LIBRARY", named("MPICH 5").given.expect("a library"))
        .output()
        .expect("pleach");
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("sees a world of 1 process, and pleach launch started 2"), "{text}");
}

#[needs::mpi]
#[test]
fn a_library_of_something_else_is_named() {
    let (mpich, library) = (named("Debian's MPICH"), "/lib/x86_64-linux-gnu/libz.so.1");
    let mut command = mpich.command(2, &train());
    let output = ended(command.env("PLEACH_MPI_LIBRARY", library).spawn().expect("mpiexec"));
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains(&format!("{library} is not a library of MPI 3 or later: it has no MPI_Init_thread")),
        "{text}"
    );
}

#[needs::mpi]
#[test]
fn two_libraries_in_one_process_are_named() {
    let mpich = named("Debian's MPICH");
    let preloaded = ["env", &format!("LD_PRELOAD={OPEN_MPI}")].map(str::to_owned);
    let program: Vec<&str> = preloaded.iter().map(String::as_str).chain(train()).collect();
    let output = ended(mpich.command(2, &program).spawn().expect("mpiexec"));
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("two libraries of MPI in one process do not work"), "{text}");
}

#[needs::mpi]
#[test]
fn processes_with_different_libraries_are_named() {
    let mpich = named("Debian's MPICH");
    let script =
        format!("if [ $PMI_RANK = 1 ]; then export PLEACH_MPI_LIBRARY={OPEN_MPI}; fi; exec {}", train().join(" "));
    let output = ended(mpich.command(2, &["sh", "-c", &script]).spawn().expect("mpiexec"));
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("opens Open MPI v4"), "{text}");
    assert!(text.contains("all processes need one library of MPI"), "{text}");
}

#[needs::mpi]
#[test]
fn two_families_without_a_launcher_are_named() {
    let text = said(&launched("2", &with_keys(&["train"], OVER_MPI)));
    assert!(text.contains("are two libraries of MPI, and no launcher of one of them started this process"), "{text}");
}

#[needs::mpi]
#[test]
fn doctor_describes_the_library_of_the_launcher() {
    for library in all() {
        let output = library.pleach(1, &["doctor"]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{}: {text}", library.name);
        assert!(text.contains(library.version), "{}: {text}", library.name);
        assert!(text.contains("thread level "), "{}: {text}", library.name);
    }
}
