//! N27, N32, N33: counters, learning rate, loss scale, dropout and place in the data are those of the undisturbed run, wherever it is cut; and if
//! one of them were not, it would be seen.

use checkpoint::manifest::MANIFEST;
use checkpoint::{LossScaleState, Manifest, RunState};
use config::unit::Tied;
use config::{BatchGrowth, BatchRamp, Format, TrainSpec};
use prove::models::{plain_layout, proof_text};
use prove::resumed::{Stretch, newest, outcome_of_legs};
use prove::{Distance, Layout};

use crate::rig::{Folder, in_two, layout, plain, whole};

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
    let parts: Vec<Stretch> = (1..=run.train.steps).map(|until| Stretch { layout: run.clone(), until }).collect();
    let cut = outcome_of_legs(&parts, &tokens, &folder.0).unwrap();
    // The first gradients are of the first step that updates, which is not in the first part.
    let mut undisturbed = whole(&run);
    undisturbed.gradients.clear();
    assert!(same_bits(&undisturbed, &prove::Outcome { gradients: Default::default(), ..cut }));
}

/// Goes on from a checkpoint whose state was changed.
fn resumed_with(run: &Layout, change: impl Fn(RunState) -> RunState) -> Result<prove::Outcome, prove::ProofError> {
    let (folder, tokens) = (Folder::new(), proof_text());
    let part = |until| [Stretch { layout: run.clone(), until }];
    let first = outcome_of_legs(&part(2), &tokens, &folder.0)?;
    let checkpoint = newest(&folder.0)?;
    let manifest = checkpoint.manifest().clone();
    let changed = Manifest { state: change(manifest.state.clone()), ..manifest };
    std::fs::write(checkpoint.path().join(MANIFEST), changed.to_bytes().unwrap()).unwrap();
    // A checkpoint has the name of its step.
    let named = format!("step-{:08}", changed.state.steps);
    std::fs::rename(checkpoint.path(), checkpoint.path().with_file_name(named)).unwrap();
    let second = outcome_of_legs(&part(run.train.steps), &tokens, &folder.0)?;
    let joined = |first: Vec<f64>, second: Vec<f64>| [first, second].concat();
    Ok(prove::Outcome {
        losses: joined(first.losses, second.losses),
        norms: joined(first.norms, second.norms),
        scaling: [first.scaling, second.scaling].concat(),
        gradients: first.gradients,
        weights: second.weights,
    })
}

#[test]
fn whatever_is_saved_beside_tensors_matters() {
    let run = eventful(Format::Fp16);
    let undisturbed = whole(&run);
    let differs = |change: &dyn Fn(RunState) -> RunState| {
        let mut resumed = resumed_with(&run, change).expect("a run");
        resumed.gradients.clone_from(&undisturbed.gradients);
        !same_bits(&undisturbed, &resumed)
    };
    assert!(!differs(&|state| state), "unchanged");
    assert!(differs(&|state| RunState { skipped_steps: state.skipped_steps - 1, ..state }), "the count of updates");
    let halved = |scale: LossScaleState| LossScaleState { factor: scale.factor / 2.0, ..scale };
    assert!(differs(&|state| RunState { loss_scale: state.loss_scale.map(halved), ..state }), "the factor of the loss");
    let counted = |scale: LossScaleState| LossScaleState { finite_steps: 1 - scale.finite_steps, ..scale };
    assert!(
        differs(&|state| RunState { loss_scale: state.loss_scale.map(counted), ..state }),
        "steps without overflow"
    );
}

#[test]
fn a_position_outside_of_the_run_is_refused() {
    let beyond =
        resumed_with(&plain(1, 1, 1), |state| RunState { steps: 9, ..state }).expect_err("too far").to_string();
    assert!(beyond.contains("after 9 steps and 48 sequences; the run has 4 steps"), "{beyond}");
}
