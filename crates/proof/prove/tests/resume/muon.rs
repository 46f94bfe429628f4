//! Runs with Muon resume with the same bits in the same layout and in another; matrices have no second moment to save.

use config::{Format, Muon, MuonScale, Optimizer, Parallelism, Tied, TrainSpec, ZeroStage};
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};
use testkit::resumed::{LayoutPart, Surroundings, newest, outcome_of_part};

use crate::resume::pairs::THREE;
use crate::resume::rig::{Folder, in_two, layout, whole};

fn by_muon(zero: ZeroStage, dp: usize, pp: usize) -> Layout {
    let plain = layout(Tied::Yes, Format::Bf16, Parallelism { zero, ..plain_layout(dp, 1, pp, 1) });
    let optimizer = Optimizer::Muon(Muon { momentum: 0.9, scale: MuonScale::AdamW });
    Layout { train: TrainSpec { optimizer, ..plain.train }, ..plain }
}

#[test]
fn momentum_resumes_in_the_same_layout_and_in_another() {
    let first = by_muon(ZeroStage::One, 2, 2);
    let undisturbed = whole(&first);
    for second in [first.clone(), by_muon(THREE, 2, 1), by_muon(ZeroStage::Off, 2, 1)] {
        for cut in 1..first.train.steps {
            let resumed = in_two(&first, &second, cut);
            assert!(resumed.weights == undisturbed.weights, "after {cut} steps, to {}", second.parallelism.degrees);
        }
    }
}

#[test]
fn adamw_does_not_resume_without_second_moments() {
    let muon = by_muon(ZeroStage::One, 2, 1);
    let adamw = Layout { train: TrainSpec { optimizer: Optimizer::AdamW, ..muon.train.clone() }, ..muon.clone() };
    let (text, folder) = (proof_text(), Folder::new());
    let go_on = |layout: &Layout, until| {
        let layout_part = LayoutPart { layout: layout.clone(), until };
        outcome_of_part(&layout_part, &folder.0, Surroundings::plain(&text))
    };
    go_on(&muon, 2).expect("a run");
    let checkpoint = newest(&folder.0).expect("a checkpoint");
    let has = |name: &str| checkpoint.shape(name).is_some();
    assert!(has("first_moment.layers.0.ffn.up.weight") && !has("second_moment.layers.0.ffn.up.weight"));
    assert!(has("second_moment.embedding.token.weight") && has("second_moment.layers.0.ffn_norm.weight"));
    let refused = go_on(&adamw, 4).expect_err("no second moments").to_string();
    assert!(refused.contains("second_moment.layers.0."), "{refused}");
}
