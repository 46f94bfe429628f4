//! R3 and R6: a process that is killed in the middle of a save, and a disk that fills up.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, committed};
use philox::philox4x32_10;

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::rig::{Folder, check, save, store, store_on};

/// Set in a child of this test: after how many bytes it dies. The folder follows the number.
pub const CHILD: &str = "PLEACH_TEST_DIES_AFTER";
/// More than a checkpoint takes.
const PLENTY: u64 = 1 << 40;

/// Bytes, and steps without any, that one save takes.
fn bytes_of_a_save() -> u64 {
    let folder = Folder::new();
    let disk = FaultyDisk::new(Fault::Kill, PLENTY);
    save(&store_on(&folder.0, Arc::new(disk.clone())).expect("a store"), 2).outcome.expect("saved");
    PLENTY - disk.left()
}

/// What every reader must find: the newest committed checkpoint loads, and it is one that was saved.
fn newest_loads(folder: &Path) -> u32 {
    let newest = committed(folder).expect("a folder").into_iter().next().expect("a checkpoint");
    let checkpoint = Checkpoint::open(&newest.path).expect("sound");
    check(&checkpoint).expect("whole");
    assert_eq!(checkpoint.state().steps, newest.steps);
    newest.steps
}

/// The body of a child: saves the second step on a disk on which it dies. Run by the tests below, alone it has nothing to do.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (bytes, folder) = told.split_once(' ').expect("a number and a folder");
    let disk = FaultyDisk::new(Fault::Kill, bytes.parse().expect("a number"));
    save(&store_on(Path::new(folder), Arc::new(disk)).expect("a store"), 2).outcome.expect("saved");
}

fn killed_after(bytes: u64, folder: &Path) -> bool {
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", "kills::child", "--test-threads", "1"]).env(CHILD, format!("{bytes} {}", folder.display()));
    let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a child");
    !status.success()
}

#[test]
fn a_killed_process_leaves_the_newest_commit() {
    let folder = Folder::new();
    let all = bytes_of_a_save();
    save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
    let mut survived = [0, 0];
    for number in 0..12 {
        let [random, ..] = philox4x32_10([number, 0, 0, 0], [3, 0]);
        // The last steps take no bytes; a few trials fall there.
        let bytes = if number < 3 { all - 1 - u64::from(number) } else { u64::from(random) % all };
        assert!(killed_after(bytes, &folder.0), "it dies after {bytes} of {all} bytes");
        let newest = newest_loads(&folder.0);
        survived[newest as usize - 1] += 1;
        if newest == 2 {
            std::fs::remove_dir_all(folder.0.join("step-00000002")).expect("removed");
        }
    }
    assert!(survived[0] > 0 && survived[1] > 0, "{survived:?}: deaths before and after the commit");
    // What the one before left is removed first, which is a step more.
    assert!(!killed_after(all + 1, &folder.0), "with all bytes it lives");
    assert_eq!(newest_loads(&folder.0), 2);
}

/// The same at every step of the commit, in this process.
#[test]
fn every_step_of_a_commit_may_be_the_last() {
    let all = bytes_of_a_save();
    for before_the_end in 0..24 {
        let folder = Folder::new();
        save(&store(&folder.0).expect("a store"), 1).outcome.expect("saved");
        let disk = FaultyDisk::new(Fault::Kill, all - 1 - before_the_end);
        save(&store_on(&folder.0, Arc::new(disk)).expect("a store"), 2).outcome.expect_err("dead");
        newest_loads(&folder.0);
        // The next run cleans up and goes on.
        save(&store(&folder.0).expect("a store"), 3).outcome.expect("saved");
        assert_eq!(newest_loads(&folder.0), 3);
    }
}

#[test]
fn a_full_disk_fails_the_save_and_nothing_else() {
    let all = bytes_of_a_save();
    let folder = Folder::new();
    let disk = FaultyDisk::new(Fault::Full, PLENTY);
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
    disk.set_left(PLENTY);
    save(&store, 2).outcome.expect("saved");
    assert_eq!(newest_loads(&folder.0), 2);
}
