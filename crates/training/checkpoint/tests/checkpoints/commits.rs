//! Commits, locks, and which checkpoints are kept.

use std::fs;
use std::sync::Arc;

use checkpoint::{
    Checkpoint, CheckpointError, Committer, Disk, LATEST, PieceCollector, ProcessWriter, Retention, RunState, Store,
    committed,
};

use crate::checkpoints::rig::{Folder, check, pieces, put, save, save_as, state, store};

fn steps(folder: &Folder) -> Vec<u32> {
    committed(&folder.0).expect("a folder").iter().map(|found| found.steps).collect()
}

#[test]
fn a_checkpoint_is_there_when_its_last_rank_is_done() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let first = ProcessWriter::new(2);
    assert!(first.finish(4, first.begin(store.folder(), &state(4), 0, &[]), &[]).is_none(), "rank 1 is awaited");
    assert!(steps(&folder).is_empty());
    assert_eq!(folder.names(), [".lock", ".step-00000004.partial"]);
    drop((first, store));
    assert_eq!(folder.names(), [".lock"], "what was not finished is gone");
    let store = crate::checkpoints::rig::store(&folder.0).expect("a store");
    save(&store, 4).outcome.expect("saved");
    save(&store, 6).outcome.expect("saved");
    assert_eq!(folder.names(), [".lock", "latest", "step-00000004", "step-00000006"]);
    assert_eq!(steps(&folder), [6, 4]);
    assert_eq!(fs::read_to_string(folder.0.join(LATEST)).expect("a file"), "step-00000006\n");
    let again = save(&store, 6).outcome.expect_err("it is there");
    assert!(matches!(again, CheckpointError::Exists { .. }), "{again}");
    check(&Checkpoint::open(&folder.0.join("step-00000006")).expect("as it was")).expect("sound");
}

/// Ranks do not wait for each other: one may begin a checkpoint before another has begun the one before.
#[test]
fn a_rank_may_be_a_checkpoint_ahead() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let (writer, committer) = (ProcessWriter::new(2), Committer::new(&store, 1));
    let done = |rank: usize, steps: u32| {
        let delivered =
            writer.finish(steps, put((&writer, store.folder()), rank, &state(steps), &pieces(rank)), &pieces(rank));
        delivered.and_then(|delivered| committer.deliver(delivered)).is_some()
    };
    assert_eq!([(0, 1), (0, 2), (1, 1), (1, 2)].map(|(rank, steps)| done(rank, steps)), [false, false, true, true]);
    assert_eq!(steps(&folder), [2, 1]);
    check(&Checkpoint::open(&folder.0.join("step-00000001")).expect("whole")).expect("sound");
}

#[test]
fn a_tensor_that_is_not_whole_is_not_committed() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let is_put = |entry: &checkpoint::PieceEntry| entry.tensor != "bias" || entry.region.start != [3];
    let error = save_as(&store, state(1), is_put).outcome.expect_err("a part is missing").to_string();
    assert_eq!(error, "4 of 7 elements of bias were not delivered");
    assert!(steps(&folder).is_empty());
    assert_eq!(folder.names(), [".lock"]);
}

#[test]
fn two_runs_do_not_write_one_folder_and_a_killed_one_is_no_obstacle() {
    let folder = Folder::new();
    let first = store(&folder.0).expect("a store");
    let error = store(&folder.0).expect_err("it is taken");
    assert!(matches!(error, CheckpointError::Locked { .. }), "{error}");
    let holder = format!("(process {} on host ", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    drop(first);
    // As a process leaves it that was killed: its lock file, a checkpoint that is not whole, one that was being
    // removed.
    fs::write(folder.0.join(".lock"), "process 1\n").expect("a file");
    for name in [".step-00000003.partial", ".step-00000002.removed"] {
        fs::create_dir(folder.0.join(name)).expect("a folder");
        fs::write(folder.0.join(name).join("rank-00000.safetensors"), "a part").expect("a file");
    }
    fs::write(folder.0.join(".latest.partial"), "step").expect("a file");
    let store = store(&folder.0).expect("a store");
    assert_eq!(folder.names(), [".latest.partial", ".lock"]);
    save(&store, 3).outcome.expect("saved");
    assert_eq!(folder.names(), [".lock", "latest", "step-00000003"]);
}

#[test]
fn what_no_rule_keeps_is_removed_and_what_is_not_committed_does_not_count() {
    let folder = Folder::new();
    let retention = Retention { newest: 1, every: 4, best: 1 };
    let store = Store::open(&folder.0, Arc::new(Disk), retention).expect("a store");
    // A folder without a manifest is not a checkpoint, whatever its number.
    fs::create_dir(folder.0.join("step-00000099")).expect("a folder");
    for (steps, held_out_loss) in [(1, Some(2.0)), (2, Some(1.0)), (3, Some(3.0)), (4, None), (5, None), (6, None)] {
        let finished = save_as(&store, RunState { held_out_loss, ..state(steps) }, |_| true);
        assert!(finished.outcome.is_ok() && finished.not_retired.is_none(), "{finished:?}");
    }
    assert_eq!(steps(&folder), [6, 4, 2]);
    store.clear().expect("removed");
    assert!(steps(&folder).is_empty());
}

/// A checkpoint is written before a measurement, whose loss is added where it is then.
#[test]
fn a_loss_that_is_measured_later_is_added_and_counts() {
    let folder = Folder::new();
    let retention = Retention { newest: 1, every: 0, best: 1 };
    let store = Store::open(&folder.0, Arc::new(Disk), retention).expect("a store");
    let committer = Committer::new(&store, 1);
    let delivered = |steps| {
        let (mut pieces_of_all, writer) = (None, ProcessWriter::new(2));
        for rank in 0..2 {
            let file = put((&writer, store.folder()), rank, &state(steps), &pieces(rank));
            pieces_of_all = writer.finish(steps, file, &pieces(rank));
        }
        committer.deliver(pieces_of_all.expect("all pieces")).expect("one process").outcome.expect("committed");
    };
    let loss = |steps: u32| {
        let path = folder.0.join(format!("step-{steps:08}"));
        let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
        check(&checkpoint).expect("whole");
        checkpoint.state().held_out_loss
    };
    // After the commit.
    delivered(1);
    assert_eq!(loss(1), None);
    committer.measured(1, 1.5).expect("added");
    assert_eq!(loss(1), Some(1.5));
    // Before the commit.
    committer.measured(2, 2.5).expect("kept");
    delivered(2);
    assert_eq!((loss(1), loss(2)), (Some(1.5), Some(2.5)));
    // The best one so far gives way when the loss of a better one is known.
    delivered(3);
    assert_eq!(steps(&folder), [3, 1]);
    committer.measured(3, 1.0).expect("added");
    assert_eq!((steps(&folder), loss(3)), (vec![3], Some(1.0)));
    assert!(!folder.names().iter().any(|name| name.contains("partial")), "{:?}", folder.names());
}

#[test]
fn a_folder_without_checkpoints_is_told() {
    let folder = Folder::new();
    assert_eq!(committed(&folder.0.join("nothing")).expect("no folder, no checkpoints"), []);
    let error = Checkpoint::open(&folder.0).expect_err("no checkpoint");
    assert!(error.is_damage() && error.to_string().contains("manifest.json cannot be read: "), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_told_before_anything_is_saved() {
    let error = store(std::path::Path::new("/proc/checkpoints")).expect_err("no files");
    assert!(error.to_string().starts_with("/proc/checkpoints cannot be written: "), "{error}");
}
