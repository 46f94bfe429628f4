//! Losses, norms, first gradients and weights.

use config::{LinearLayer, LoraSpec, Muon, MuonScale, Optimizer, Overlap, Tied, ZeroStage};

use crate::gpu_runs::rig::{self, ZERO_THREE, gemma, layout, with_more_sequences};

/// Steps of a run, as many as `PLEACH_CASES` says, or a few.
fn steps() -> u32 {
    needs::cases!(3)
}

/// Eight ranks on eight GPUs, or all on one, against eight ranks on CPUs.
fn compare(tied: Tied, zero: ZeroStage, overlap: Overlap, num_gpus: usize) {
    let mut layout = layout(tied, [2, 2, 2], zero, overlap, steps());
    layout.model.z_loss = (tied == Tied::No).then_some(1e-3);
    rig::compare(&layout, num_gpus);
}

#[needs::cuda]
#[test]
fn gpt_with_sharded_optimizer_state_on_eight_gpus() {
    compare(Tied::Yes, ZeroStage::One, Overlap::On, 8);
}

#[needs::cuda]
#[test]
fn llama_with_sharded_parameters_on_eight_gpus() {
    compare(Tied::No, ZERO_THREE, Overlap::On, 8);
}

#[needs::cuda]
#[test]
fn gpt_with_sharded_parameters_on_eight_gpus() {
    compare(Tied::Yes, ZERO_THREE, Overlap::On, 8);
}

#[needs::cuda]
#[test]
fn llama_with_sharded_optimizer_state_on_eight_gpus() {
    compare(Tied::No, ZeroStage::One, Overlap::On, 8);
}

#[needs::cuda]
#[test]
fn gpt_with_sharded_parameters_on_one_gpu() {
    compare(Tied::Yes, ZERO_THREE, Overlap::On, 1);
}

#[needs::cuda]
#[test]
fn llama_with_sharded_optimizer_state_on_one_gpu_without_overlap() {
    compare(Tied::No, ZeroStage::One, Overlap::Off, 1);
}

/// Updates are gathered and orthogonalised, and weights are averaged.
#[needs::cuda]
#[test]
fn llama_by_muon_on_two_gpus() {
    let mut layout = layout(Tied::No, [2, 2, 1], ZeroStage::One, Overlap::Off, steps());
    layout.train.optimizer = Optimizer::Muon(Muon { momentum: 0.9, scale: MuonScale::AdamW });
    layout.train.ema_decay = Some(0.9);
    rig::compare(&layout, 2);
}

/// Adapters alone are trained and averaged; all other weights are frozen.
#[needs::cuda]
#[test]
fn adapters_of_llama_on_two_gpus() {
    let layout = layout(Tied::No, [2, 2, 1], ZeroStage::One, Overlap::On, steps());
    let mut layout = with_more_sequences(layout);
    let targets = vec![LinearLayer::Query, LinearLayer::Output, LinearLayer::Gate, LinearLayer::Down];
    layout.model.lora = Some(LoraSpec { rank: 4, alpha: 8.0, targets });
    layout.train.ema_decay = Some(0.9);
    rig::compare(&layout, 2);
}

/// Soft caps of scores and logits.
#[needs::cuda]
#[test]
fn gemma_on_two_gpus() {
    let mut layout = layout(Tied::No, [2, 2, 2], ZeroStage::One, Overlap::On, steps());
    layout.model = gemma(layout.model);
    rig::compare(&layout, 2);
}

/// Tensor-parallel groups and stages on a GPU each, replicas across: both kinds of communicators in one run.
#[needs::cuda]
#[test]
fn llama_on_two_gpus() {
    compare(Tied::No, ZeroStage::One, Overlap::On, 2);
}
