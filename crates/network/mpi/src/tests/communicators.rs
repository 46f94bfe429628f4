//! Communicators that are freed make room for others: each library has some thousand at a time. The child is this
//! program, started by the `mpiexec` of each library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mpi::{Collective, Endpoint, Number, ThreadLevel};

/// Names the library to the child.
const LIBRARY: &str = "MPI_TEST_LIBRARY";
const LIMIT: Duration = Duration::from_secs(60);
/// MPICH has 2,048 communicators at a time.
const WORLDS: usize = 1_200;
/// In each world, as of two lanes.
const PER_WORLD: usize = 2;

fn opened(library: OsString) -> Endpoint {
    Endpoint::open(PathBuf::from(library), ThreadLevel::Funneled, LIMIT, &|| None).expect("the library opens")
}

/// A child that opens, uses and frees.
fn open_worlds(library: OsString) {
    let endpoint = opened(library);
    let processes: Vec<usize> = (0..endpoint.processes()).collect();
    for world in 0..WORLDS {
        let open = |lane: usize| {
            let tag = (world * PER_WORLD + lane) as u32;
            endpoint.open_communicator(processes.clone(), tag, LIMIT, &|| None).unwrap_or_else(|error| {
                panic!("communicator {lane} of world {world}: {error}");
            })
        };
        let opened: Vec<_> = (0..PER_WORLD).map(open).collect();
        for communicator in &opened {
            let sum = Collective::AllReduce { number: Number::Integer, len: 1 };
            let ended = endpoint.begin(*communicator, sum, vec![world as u64 + endpoint.process() as u64]);
            let expected: u64 = processes.iter().map(|process| (world + process) as u64).sum();
            assert_eq!(ended.recv_timeout(LIMIT).expect("a sum"), [expected], "world {world}");
        }
        endpoint.free_communicators(opened);
    }
    endpoint.finish(LIMIT, &|| None).expect("an end");
    println!("{WORLDS} worlds in process {}", endpoint.process());
}

/// A child in which a communicator that was freed is refused by name, and ends the messages of the process.
fn use_freed(library: OsString) {
    let endpoint = opened(library);
    let opened = endpoint.open_communicator(vec![0], 1, LIMIT, &|| None).expect("a communicator");
    let (sender, failures) = std::sync::mpsc::channel();
    endpoint.on_failure(move |failure| drop(sender.send(failure.description.clone())));
    endpoint.free_communicators(vec![opened]);
    let ended = endpoint.begin(opened, Collective::Barrier, vec![]);
    let failure = failures.recv_timeout(LIMIT).expect("a failure");
    assert!(failure.starts_with("is not reached over MPI: MPI_Ibarrier: "), "{failure}");
    assert!(ended.recv_timeout(LIMIT).is_err(), "nothing comes back");
    println!("refused in process {}", endpoint.process());
    // No call follows, as after every failure.
    std::process::exit(0);
}

/// Each library with its `mpiexec`.
fn installed() -> [(PathBuf, PathBuf); 4] {
    let wheels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/mpi");
    let debian = Path::new("/usr/lib/x86_64-linux-gnu");
    let all = [
        (wheels.join("mpich/bin/mpiexec"), wheels.join("mpich/lib/libmpi_abi.so.1")),
        ("/usr/bin/mpiexec.mpich".into(), debian.join("libmpich.so.12")),
        ("/usr/bin/mpiexec.openmpi".into(), debian.join("libmpi.so.40")),
        (wheels.join("intel/bin/mpiexec"), wheels.join("intel/lib/libmpi.so.12")),
    ];
    for path in all.iter().flat_map(|(mpiexec, library)| [mpiexec, library]) {
        assert!(path.exists(), "{} must be installed: run tools/install-mpi.sh", path.display());
    }
    all
}

/// Runs the test `name` of this program in `number` processes of each library, each of which prints `line`.
fn in_processes(name: &str, number: usize, line: &str) {
    for (mpiexec, library) in installed() {
        let is_open_mpi = mpiexec.ends_with("mpiexec.openmpi");
        let mut command = Command::new(&mpiexec);
        command.args(if is_open_mpi { &["--oversubscribe"][..] } else { &[] });
        command.args(["-n", &number.to_string()]).arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", name, "--nocapture"]).env(LIBRARY, &library).stdin(Stdio::null());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let output = command.output().expect("mpiexec");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches(line).count(), number, "{}: {text}", library.display());
    }
}

#[needs::mpi]
#[test]
fn more_communicators_than_a_library_has_are_opened_one_after_the_other() {
    let own = "tests::communicators::more_communicators_than_a_library_has_are_opened_one_after_the_other";
    match std::env::var_os(LIBRARY) {
        Some(library) => open_worlds(library),
        None => in_processes(own, 2, &format!("{WORLDS} worlds in process ")),
    }
}

#[needs::mpi]
#[test]
fn a_communicator_that_was_freed_is_refused() {
    match std::env::var_os(LIBRARY) {
        Some(library) => use_freed(library),
        None => {
            in_processes("tests::communicators::a_communicator_that_was_freed_is_refused", 1, "refused in process ")
        }
    }
}
