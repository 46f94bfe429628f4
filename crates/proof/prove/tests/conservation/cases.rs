//! Runs of two steps, small in every direction, that between them use every kind of instruction.

use config::{
    FullRecompute, Gathering, GradientReduction, GradientSums, LossScaling, ModelSpec, Offload, Parallelism, Precision,
    Products, QkNorm, Recompute, Reshard, SavedInputs, ScheduleKind, SequenceParallel, TrainSpec, ZeroStage,
};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::Setup;

pub const STEPS: u32 = 2;

/// A run and its name in messages.
pub struct Case {
    pub name: &'static str,
    pub model: ModelSpec,
    pub parallelism: Parallelism,
    pub precision: Precision,
    pub sums: GradientSums,
    pub offload: Offload,
}

impl Case {
    pub fn setup(&self) -> Setup {
        let (precision, sums, offload) = (self.precision, self.sums, self.offload);
        let train = TrainSpec { steps: STEPS, global_batch: 12, precision, sums, offload, ..proof_training() };
        Setup::new(self.model.clone(), self.parallelism.clone(), train).unwrap()
    }

    pub fn tokens(&self) -> ProofText {
        ProofText { vocabulary: self.model.vocabulary, seed: 5, labels: Labels::Every }
    }
}

/// Every case.
pub fn cases() -> Vec<Case> {
    cases_in_rank_order().into_iter().chain(cases_in_runs()).chain(cases_offloaded()).collect()
}

/// Activations of 3 KiB and units of 70 KiB: collectives on both sides of the length from which they are cut into
/// slices. Three ranks cut most tensors unevenly.
fn cases_in_rank_order() -> Vec<Case> {
    let gpt2 = |tied| ModelSpec { num_layers: 5, ..proof_model(Style::Gpt2, 12, tied) };
    let llama = |tied| ModelSpec { num_layers: 5, qk_norm: QkNorm::Heads, ..proof_model(Style::Llama, 4, tied) };
    let (precision, sums, offload) = (Precision::Fp32(Products::Chained), GradientSums::Single, Offload::None);
    let case = |name, model, parallelism| Case { name, model, parallelism, precision, sums, offload };
    let exact = |case: Case| Case { sums: GradientSums::Exact, ..case };
    let narrow = |precision, case: Case| Case { precision, ..case };
    let fp16 = Precision::Fp16(Products::Chained, LossScaling::USUAL);
    let zero = |parallelism| Parallelism { zero: ZeroStage::One, ..parallelism };
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    let two = |reduce, parallelism| Parallelism { zero: ZeroStage::Two { reduce }, ..parallelism };
    let three = |reduce, prefetch, reshard, parallelism| {
        let zero = ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } };
        Parallelism { zero, ..parallelism }
    };
    let groups = |shard_group, parallelism| Parallelism { shard_group: Some(shard_group), ..parallelism };
    let gpipe = |parallelism| Parallelism { schedule: ScheduleKind::GPipe.into(), ..parallelism };
    let recompute = |parallelism| Parallelism { recompute: Recompute::FULL, ..parallelism };
    let selective = |parallelism| Parallelism { recompute: Recompute::Selective, ..parallelism };
    let shared = |parallelism| Parallelism { sequence_parallel: SequenceParallel::On, ..parallelism };
    let some_sharded = |parallelism| {
        let recompute = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Sharded });
        Parallelism { recompute, ..parallelism }
    };
    vec![
        case("one rank, tied", gpt2(true), plain_layout(1, 1, 1, 2)),
        case("one rank, recomputing, grouped queries", llama(false), recompute(plain_layout(1, 1, 1, 2))),
        case("dp 3", gpt2(false), plain_layout(3, 1, 1, 2)),
        case("dp 3, ZeRO 1, tied", gpt2(true), zero(plain_layout(3, 1, 1, 1))),
        case("tp 3, untied", gpt2(false), plain_layout(1, 3, 1, 2)),
        case("tp 4, grouped queries", llama(true), plain_layout(1, 4, 1, 1)),
        case("pp 3, tied", gpt2(true), plain_layout(1, 1, 3, 2)),
        case("pp 5, GPipe, untied", gpt2(false), gpipe(plain_layout(1, 1, 5, 1))),
        case("dp 2 x pp 2, tied", llama(true), plain_layout(2, 1, 2, 1)),
        case("dp 2 x tp 2 x pp 2, ZeRO 1, tied", gpt2(true), zero(plain_layout(2, 2, 2, 2))),
        case("dp 3 x tp 2 x pp 2, ZeRO 1, recomputing", llama(true), recompute(zero(plain_layout(3, 2, 2, 1)))),
        narrow(
            Precision::Bf16(Products::Chained),
            case("dp 2 x tp 2 x pp 2, ZeRO 1, bf16", gpt2(true), zero(plain_layout(2, 2, 2, 2))),
        ),
        narrow(fp16, case("dp 2 x tp 4, fp16, grouped queries", llama(false), plain_layout(2, 4, 1, 1))),
        case("dp 2 x tp 3 x pp 2, GPipe, tied", gpt2(true), gpipe(plain_layout(2, 3, 2, 1))),
        narrow(
            fp16,
            case("dp 3, ZeRO 3 per microbatch, fp16", gpt2(true), {
                three(microbatch, 1, Reshard::AfterUse, plain_layout(3, 1, 1, 1))
            }),
        ),
        case("dp 3, ZeRO 2", gpt2(false), two(step, plain_layout(3, 1, 1, 2))),
        case(
            "dp 2 x pp 2, ZeRO 2 per microbatch, GPipe, tied",
            gpt2(true),
            two(microbatch, gpipe(plain_layout(2, 1, 2, 1))),
        ),
        case("dp 3, ZeRO 3, tied", gpt2(true), three(step, 1, Reshard::AfterUse, plain_layout(3, 1, 1, 2))),
        case(
            "dp 2 x tp 2 x pp 2, ZeRO 3 per microbatch, recomputing",
            llama(true),
            three(microbatch, 0, Reshard::AfterUse, recompute(plain_layout(2, 2, 2, 1))),
        ),
        case("dp 4 in groups of 2, ZeRO 1", llama(false), groups(2, zero(plain_layout(4, 1, 1, 1)))),
        case(
            "dp 4 in groups of 2 x pp 2, ZeRO 3 kept, tied",
            gpt2(true),
            groups(2, three(step, 2, Reshard::AfterBackward, plain_layout(4, 1, 2, 1))),
        ),
        case("one rank, core recomputed, grouped queries", llama(false), selective(plain_layout(1, 1, 1, 2))),
        case("tp 2, sequence parallel, tied", gpt2(true), shared(plain_layout(1, 2, 1, 2))),
        case("tp 4, sequence parallel, core recomputed", llama(true), selective(shared(plain_layout(1, 4, 1, 1)))),
        case("tp 3, some recomputed from shards", gpt2(false), some_sharded(plain_layout(1, 3, 1, 3))),
        case("dp 2 x tp 2 x pp 2, ZeRO 1, sequence parallel, some recomputed", gpt2(true), {
            some_sharded(shared(zero(plain_layout(2, 2, 2, 2))))
        }),
        exact(case("one rank, exact", llama(false), plain_layout(1, 1, 1, 2))),
        exact(case("dp 2 x tp 2 x pp 2, ZeRO 2 per microbatch, sequence parallel, exact", gpt2(true), {
            two(microbatch, shared(plain_layout(2, 2, 2, 2)))
        })),
        case("tp 2 x pp 2, core recomputed", gpt2(true), selective(plain_layout(1, 2, 2, 1))),
    ]
}

/// Gradients of some replicas are added first.
fn cases_in_runs() -> [Case; 3] {
    let case = |name, sum_tree, sums, parallelism| Case {
        name,
        model: ModelSpec { num_layers: 5, qk_norm: config::QkNorm::Heads, ..proof_model(Style::Llama, 4, false) },
        parallelism: Parallelism { sum_tree, ..parallelism },
        precision: Precision::Fp32(Products::Chained),
        sums,
        offload: Offload::None,
    };
    let groups = Parallelism { zero: ZeroStage::One, shard_group: Some(3), ..plain_layout(6, 1, 1, 1) };
    let sharded = Parallelism { zero: ZeroStage::One, ..plain_layout(4, 1, 1, 1) };
    [
        case("dp 6 in runs of 4", 4, GradientSums::Single, plain_layout(6, 1, 1, 2)),
        case("dp 6 in groups of 3 and runs of 2, ZeRO 1", 2, GradientSums::Single, groups),
        case("dp 4 in runs of 2, ZeRO 1, exact", 2, GradientSums::Exact, sharded),
    ]
}

/// Activations are in memory of the host between their uses.
fn cases_offloaded() -> [Case; 4] {
    let case = |name, tied, precision, parallelism| Case {
        name,
        model: ModelSpec { num_layers: 5, ..proof_model(Style::Gpt2, 12, tied) },
        parallelism,
        precision,
        sums: GradientSums::Single,
        offload: Offload::Activations,
    };
    let (single, narrow) = (Precision::Fp32(Products::Chained), Precision::Bf16(Products::Chained));
    let eight = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 2, 1) };
    let sharded = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Sharded });
    let of_shards = Parallelism { recompute: sharded, ..plain_layout(1, 3, 1, 3) };
    let gpipe = ScheduleKind::GPipe.into();
    let of_core = Parallelism { recompute: Recompute::Selective, schedule: gpipe, ..plain_layout(1, 1, 2, 1) };
    [
        case("one rank, offloaded", false, single, plain_layout(1, 1, 1, 2)),
        case("dp 2 x tp 2 x pp 2, ZeRO 1, bf16, offloaded", true, narrow, eight),
        case("tp 3, some recomputed from shards, offloaded", false, single, of_shards),
        case("pp 2, GPipe, core recomputed, offloaded", true, single, of_core),
    ]
}
