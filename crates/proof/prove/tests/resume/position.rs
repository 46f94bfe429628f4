//! A run whose batch grows, and which skips steps in fp16, may be cut after any step, or after every one.

use checkpoint::{MANIFEST, Manifest, RunState};
use config::{BatchGrowth, BatchRamp, Format, Tied, TrainSpec};
use prove::Distance;
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};
use testkit::resumed::{LayoutPart, newest, outcome_of_parts};

use crate::resume::rig::{Folder, in_two, layout, plain, whole};

/// Dropout is in the model; the batch grows; in fp16 the first steps are skipped.
fn eventful(format: Format) -> Layout {
    let ramp = BatchRamp { start: 12, increment: 4, sequences: 60, grows: BatchGrowth::Microbatches };
    let layout = layout(Tied::Yes, format, plain_layout(2, 1, 2, 1));
    let train = TrainSpec { steps: 5, batch_ramp: Some(ramp), ..layout.train };
    Layout { train, ..layout }
}

fn same_bits(first: &prove::Outcome, second: &prove::Outcome) -> bool {
    Distance::between(first, second, |_| false).same_bits
}

#[test]
fn a_run_may_be_cut_anywhere() {
    for format in [Format::Fp32, Format::Fp16] {
        let run = eventful(format);
        let undisturbed = whole(&run);
        for cut in 1..run.train.steps {
            assert!(same_bits(&undisturbed, &in_two(&run, &run, cut)), "{format:?} after step {cut}");
        }
    }
}

#[test]
fn a_run_may_be_cut_after_every_step() {
    let run = eventful(Format::Fp16);
    let (folder, tokens) = (Folder::new(), proof_text());
    let parts: Vec<LayoutPart> = (1..=run.train.steps).map(|until| LayoutPart { layout: run.clone(), until }).collect();
    let cut = outcome_of_parts(&parts, &tokens, &folder.0).unwrap();
    // The first gradients are of the first step that updates, which is not in the first part.
    let mut undisturbed = whole(&run);
    undisturbed.gradients.clear();
    assert!(same_bits(&undisturbed, &prove::Outcome { gradients: Default::default(), ..cut }));
}

/// A checkpoint that says that it is after more steps than the run has.
#[test]
fn a_position_outside_of_the_run_is_refused() {
    let (run, folder, tokens) = (plain(1, 1, 1), Folder::new(), proof_text());
    let part = |until| [LayoutPart { layout: run.clone(), until }];
    outcome_of_parts(&part(2), &tokens, &folder.0).unwrap();
    let checkpoint = newest(&folder.0).unwrap();
    let manifest = checkpoint.manifest().clone();
    let changed = Manifest { state: RunState { steps: 9, ..manifest.state.clone() }, ..manifest };
    std::fs::write(checkpoint.path().join(MANIFEST), changed.to_bytes().unwrap()).unwrap();
    // A checkpoint has the name of its step.
    std::fs::rename(checkpoint.path(), checkpoint.path().with_file_name("step-00000009")).unwrap();
    let beyond = outcome_of_parts(&part(run.train.steps), &tokens, &folder.0).unwrap_err().to_string();
    assert!(beyond.contains("after 9 steps and 48 sequences; the run has 4 steps"), "{beyond}");
}
