//! R3 and R6: a process that is killed in the middle of a save, and a disk that fills up.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, committed};
use philox::philox4x32_10;
use testkit::faulty_disk::{Fault, FaultyDisk};

use crate::checkpoints::rig::{Folder, check, save, store, store_on};

/// Bytes, and steps without any, that one save takes.
fn bytes_of_a_save() -> u64 {
    let folder = Folder::new();
    let disk = FaultyDisk::new(Fault::Dead, FaultyDisk::PLENTY);
    save(&store_on(&folder.0, Arc::new(disk.clone())).expect("a store"), 2).outcome.expect("saved");
    FaultyDisk::PLENTY - disk.left()
}

/// Requirement of every reader: the newest committed checkpoint loads, and it is one that was saved.
fn newest_loads(folder: &Path) -> u32 {
    let newest = committed(folder).expect("a folder").into_iter().next().expect("a checkpoint");
    let checkpoint = Checkpoint::open(&newest.path).expect("sound");
    check(&checkpoint).expect("whole");
    assert_eq!(checkpoint.state().steps, newest.steps);
    newest.steps
}

/// R3 for each of the last steps. `prove` kills processes.
#[test]
fn every_step_of_a_commit_may_be_the_last() {
    let all = bytes_of_a_save();
    for before_the_end in 0..24 {
        let folder = Folder::new();
        save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
        let disk = FaultyDisk::new(Fault::Dead, all - 1 - before_the_end);
        save(&store_on(&folder.0, Arc::new(disk)).expect("a store"), 2).outcome.expect_err("dead");
        newest_loads(&folder.0);
        // The next run cleans up and continues.
        save(&store(&folder.0).expect("a store"), 3).outcome.expect("saved");
        assert_eq!(newest_loads(&folder.0), 3);
    }
}

#[test]
fn a_full_disk_fails_the_save_and_nothing_else() {
    let all = bytes_of_a_save();
    let folder = Folder::new();
    let disk = FaultyDisk::new(Fault::Full, FaultyDisk::PLENTY);
    let store = store_on(&folder.0, Arc::new(disk.clone())).expect("a store");
    save(&store, 1).outcome.expect("saved");
    for number in 0..20 {
        let [random, ..] = philox4x32_10([number, 0, 0, 0], [6, 0]);
        disk.set_left(u64::from(random) % (all - 100));
        let error = save(&store, 2).outcome.expect_err("no room");
        assert!(matches!(error, CheckpointError::Write { .. }), "{error}");
        assert!(error.to_string().ends_with("; earlier checkpoints are as they were"), "{error}");
        assert_eq!(newest_loads(&folder.0), 1);
        assert_eq!(folder.names(), [".lock", "latest", "step-00000001"], "nothing takes room");
    }
    // Someone makes room.
    disk.set_left(FaultyDisk::PLENTY);
    save(&store, 2).outcome.expect("saved");
    assert_eq!(newest_loads(&folder.0), 2);
}
