//! A run that moves from CPUs to GPUs and back has the bits of one that has not moved.

use config::{Overlap, Tied, ZeroStage};
use testkit::soft_gpus::soft_gpus;

use crate::rig::{Folder, On, ZERO_THREE, layout, leg, outcome};

#[test]
fn a_checkpoint_moves_to_gpus_and_back_with_the_same_bits() {
    let Some(gpus) = soft_gpus(2) else { return };
    let gpus = On::Gpus(gpus);
    let sharded = layout(Tied::Yes, [2, 1, 2], ZeroStage::One, Overlap::Off, 6);
    let gathered = layout(Tied::Yes, [2, 1, 2], ZERO_THREE, Overlap::On, 6);
    let whole = outcome(&sharded, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    let parts = [
        leg(&sharded, &On::Cpus, 2, &folder.0),
        leg(&sharded, &gpus, 4, &folder.0),
        leg(&sharded, &On::Cpus, 6, &folder.0),
    ];
    let moved = parts.into_iter().reduce(|whole, part| whole.followed_by(part)).expect("parts");
    assert!(moved == whole, "{:?} {:?}", moved.losses, whole.losses);
    // Saved on GPUs from shards of parameters, and read there.
    let whole = outcome(&gathered, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    let moved = leg(&gathered, &gpus, 3, &folder.0).followed_by(leg(&gathered, &gpus, 6, &folder.0));
    assert!(moved == whole, "{:?} {:?}", moved.losses, whole.losses);
}
