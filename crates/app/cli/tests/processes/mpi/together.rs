//! Two runs at the same time on one machine, each by its own mpiexec and without an address.

use super::libraries::{ended, of_each_library, said};
use crate::harness::several::{Folder, on_threads, with_keys};

const KEYS: &[&str] = &["train.steps=20"];

#[needs::mpi]
#[test]
fn two_runs_at_the_same_time_do_not_meet() {
    let folder = Folder::new("mpi-together");
    on_threads(&[KEYS, &[&folder.run("threads")]].concat());
    for library in of_each_library() {
        let runs = ["one", "two", "three"].map(|name| {
            let run = format!("{name}-{}", library.name.replace(' ', "-"));
            let own = folder.run(&run);
            let words = with_keys(&["train"], &[KEYS, &[&own]].concat());
            let mut command = library.command(2, &[&[env!("CARGO_BIN_EXE_pleach")], &words[..]].concat());
            (run, command.env_remove("PLEACH_RENDEZVOUS").spawn().expect("mpiexec"))
        });
        for (run, child) in runs {
            let output = ended(child);
            assert_eq!(output.status.code(), Some(0), "{run}: {}", said(&output));
            assert_eq!(folder.losses(&run), folder.losses("threads"), "{run}");
        }
    }
}
