//! Optimizer state in memory of the host changes no bit of a run, and none of a checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use config::{
    Format, GradientReduction, Muon, MuonScale, Offload, Optimizer, Overlap, Parallelism, Tied, TrainSpec, ZeroStage,
};
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::resumed::{LayoutPart, Surroundings, newest, outcome_of_part};

use crate::resume::pairs::{THREE, zero};
use crate::resume::rig::{Folder, in_two, layout, whole};

fn offloaded(layout: &Layout) -> Layout {
    Layout { train: TrainSpec { offload: Offload::Optimizer, ..layout.train.clone() }, ..layout.clone() }
}

/// One rank, and eight ranks with each form of sharding, with streams in line and side by side.
fn layouts(format: Format) -> Vec<Layout> {
    let two = ZeroStage::Two { reduce: GradientReduction::Step };
    let eight = [ZeroStage::Off, ZeroStage::One, two, THREE].map(|stage| zero(stage, 2, 2, 2));
    let one = zero(ZeroStage::Off, 1, 1, 1);
    let all = eight.into_iter().chain([one]).enumerate().map(|(number, parallelism)| {
        let tied = if number % 2 == 0 { Tied::Yes } else { Tied::No };
        (tied, parallelism)
    });
    let both = all.flat_map(|(tied, parallelism)| {
        [Overlap::Off, Overlap::On]
            .map(|overlap| layout(tied, format, Parallelism { overlap: Some(overlap), ..parallelism.clone() }))
    });
    both.collect()
}

#[test]
fn runs_have_the_bits_of_those_without() {
    for format in [Format::Fp32, Format::Bf16] {
        for layout in layouts(format) {
            assert!(whole(&offloaded(&layout)) == whole(&layout), "{format:?} {:?}", layout.parallelism);
        }
    }
}

/// Muon gathers and orthogonalises updates of staged momentum, and averages are staged as well.
#[test]
fn runs_by_muon_with_averages_have_the_bits_of_those_without() {
    let mut layout = layout(Tied::Yes, Format::Bf16, zero(ZeroStage::One, 2, 2, 1));
    layout.train.optimizer = Optimizer::Muon(Muon { momentum: 0.9, scale: MuonScale::AdamW });
    layout.train.ema_decay = Some(0.75);
    assert!(whole(&offloaded(&layout)) == whole(&layout), "{:?}", layout.parallelism);
}

/// The files of the newest checkpoint of a run of `layout`, by name.
fn files(layout: &Layout) -> BTreeMap<String, Vec<u8>> {
    let (folder, text) = (Folder::new(), proof_text());
    let layout_part = LayoutPart { layout: layout.clone(), until: layout.train.steps };
    outcome_of_part(&layout_part, &folder.0, Surroundings::plain(&text)).expect("a run");
    let mut files = BTreeMap::new();
    add_files(newest(&folder.0).expect("a checkpoint").path(), &mut files);
    files
}

fn add_files(folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => add_files(&path, files),
            false => {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                files.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
}

#[test]
fn checkpoints_have_the_same_bytes() {
    let plain = layout(Tied::Yes, Format::Bf16, zero(ZeroStage::One, 2, 2, 2));
    let (with, without) = (files(&offloaded(&plain)), files(&plain));
    assert!(without.len() > 8, "{:?}", without.keys());
    assert!(with == without, "{:?} {:?}", with.keys(), without.keys());
}

#[test]
fn runs_resume_with_and_without() {
    let plain = layout(Tied::Yes, Format::Bf16, zero(ZeroStage::One, 2, 1, 2));
    let expected = whole(&plain);
    for (before, after) in
        [(offloaded(&plain), plain.clone()), (plain.clone(), offloaded(&plain)), (offloaded(&plain), offloaded(&plain))]
    {
        assert!(in_two(&before, &after, 2) == expected, "{:?} to {:?}", before.train.offload, after.train.offload);
    }
}
