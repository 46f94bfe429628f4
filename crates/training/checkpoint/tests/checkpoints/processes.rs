//! Several processes write one checkpoint: each delivers records of its pieces as bytes, and one commits.

use std::fs;
use std::sync::Arc;

use checkpoint::{
    Checkpoint, CheckpointError, CheckpointFolder, Committer, Disk, MANIFEST, PieceCollector, ProcessPieces,
    ProcessWriter, Store,
};

use crate::checkpoints::rig::{Folder, check, pieces, put, save, state, store};

/// Rank `rank` alone in its process, after its file is on the disk: the message to the process that commits.
fn message(folder: &CheckpointFolder, rank: usize, steps: u32) -> Vec<u8> {
    let writer = ProcessWriter::new(1);
    let file = put((&writer, folder), rank, &state(steps), &pieces(rank));
    let delivered = writer.finish(steps, file, &pieces(rank)).expect("its only rank is done");
    delivered.to_bytes().expect("JSON")
}

fn deliver(committer: &Committer<'_>, message: &[u8]) -> Option<checkpoint::Finished> {
    committer.deliver(ProcessPieces::from_bytes(message).expect("pieces of a process"))
}

/// The manifest of a checkpoint that two ranks of one process wrote.
fn manifest_of_one_process(steps: u32) -> Vec<u8> {
    let folder = Folder::new();
    save(&store(&folder.0).expect("a store"), steps).outcome.expect("saved");
    fs::read(folder.0.join(format!("step-{steps:08}")).join(MANIFEST)).expect("a manifest")
}

#[test]
fn records_that_travel_as_bytes_give_the_same_manifest_in_any_order() {
    for order in [[0, 1], [1, 0]] {
        let folder = Folder::new();
        let store: Store = store(&folder.0).expect("a store");
        let committer = Committer::new(&store, 2);
        // Other processes name the folder by its path.
        let elsewhere = CheckpointFolder::new(&folder.0, Arc::new(Disk));
        let outcomes = order.map(|rank| deliver(&committer, &message(&elsewhere, rank, 4)));
        let [None, Some(finished)] = outcomes else { panic!("the last process commits") };
        let path = finished.outcome.expect("committed").path;
        assert_eq!(fs::read(path.join(MANIFEST)).expect("a manifest"), manifest_of_one_process(4));
        check(&Checkpoint::open(&path).expect("whole")).expect("sound");
    }
}

/// Only the process that commits locks and cleans.
#[test]
fn a_second_process_disturbs_no_file_of_the_first() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let committer = Committer::new(&store, 2);
    let first = message(store.folder(), 0, 7);
    let part = folder.0.join(".step-00000007.partial/rank-00000.safetensors");
    let second = CheckpointFolder::new(&folder.0, Arc::new(Disk));
    let writer = ProcessWriter::new(1);
    writer.begin(&second, &state(7), 1, &[]).expect("the folder is there");
    assert!(part.is_file());
    drop(writer);
    assert!(part.is_file(), "a writer that ends removes nothing");
    let last = message(&second, 1, 7);
    assert!(deliver(&committer, &last).is_none() && part.is_file());
    deliver(&committer, &first).expect("the last delivery").outcome.expect("committed");
    assert_eq!(folder.names(), [".lock", "latest", "step-00000007"]);
}

#[test]
fn a_process_may_be_a_checkpoint_ahead() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let committer = Committer::new(&store, 2);
    let order = [(0, 1), (0, 2), (1, 1), (1, 2)];
    let done = order.map(|(rank, steps)| deliver(&committer, &message(store.folder(), rank, steps)).is_some());
    assert_eq!(done, [false, false, true, true]);
    assert_eq!(folder.names(), [".lock", "latest", "step-00000001", "step-00000002"]);
}

#[test]
fn the_failure_of_another_process_is_the_failure_of_the_checkpoint() {
    let folder = Folder::new();
    let store = store(&folder.0).expect("a store");
    let committer = Committer::new(&store, 2);
    let writer = ProcessWriter::new(1);
    writer.begin(store.folder(), &state(3), 1, &pieces(1)).expect("a file");
    let broken = Err(CheckpointError::State("the arena of rank 1 is gone".into()));
    let failed = writer.finish(3, broken, &pieces(1)).expect("delivered").to_bytes().expect("JSON");
    assert!(deliver(&committer, &failed).is_none());
    let error = deliver(&committer, &message(store.folder(), 0, 3)).expect("the last").outcome.expect_err("a failure");
    assert_eq!(error.to_string(), "the state of a rank could not be read: the arena of rank 1 is gone");
    assert_eq!(folder.names(), [".lock"], "what was not committed is removed");
}

#[test]
fn other_bytes_are_refused() {
    let error = ProcessPieces::from_bytes(b"{}").expect_err("no pieces").to_string();
    assert!(error.starts_with("a process sent something else than its pieces: "), "{error}");
}
