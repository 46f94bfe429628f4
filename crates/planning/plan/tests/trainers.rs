//! Reductions and gathers of other trainers, in whole steps.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, Software, TensorCollectives, Transfers, UpdatedGathers, Updates, named};
use config::{RunConfig, Unit};
use plan::PreparedStep;
use sim::Loss;

fn cluster() -> Cluster {
    Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap()
}

fn trainer(name: &str) -> Software {
    Software::from_toml(Software::named(name).unwrap()).unwrap()
}

/// A GPT of 24 layers on `dp` replicas of 8 ranks, 16 sequences each.
fn config(dp: usize, keys: &[&str]) -> RunConfig {
    let mut overrides: Vec<String> = [
        "model.num_layers=24".into(),
        "model.hidden=4096".into(),
        "model.num_heads=32".into(),
        "model.context=2048".into(),
        "model.vocabulary=51200".into(),
        "train.sequence_length=2048".into(),
        "train.precision=\"bf16\"".into(),
        format!("train.global_batch={}", 16 * dp),
        format!("parallelism.dp={dp}"),
        "parallelism.tp=8".into(),
        "parallelism.pp=1".into(),
        "parallelism.microbatch_size=4".into(),
    ]
    .to_vec();
    overrides.extend(keys.iter().map(|key| format!("parallelism.{key}")));
    RunConfig::load("", "", &overrides).unwrap()
}

fn step(dp: usize, keys: &[&str], software: &Software) -> PreparedStep {
    let RunConfig { model, parallelism, train, .. } = config(dp, keys);
    PreparedStep::new(&model, &parallelism, &train, Some(software)).unwrap()
}

/// With as much work per rank a step on 128 times as many nodes takes longer by the steps of two rings alone, for one
/// bucket has all parameters: a reduction and a gather of 128 x 14 us. A gather of each tensor by itself would pay
/// that 300 times.
#[test]
fn weak_scaling_of_a_bucketed_optimizer_is_as_flat_as_its_rings() {
    let (cluster, software) = (cluster(), trainer("megatron-core-2024"));
    let ns = |dp| step(dp, &["zero=1"], &software).on(&cluster).unwrap().step_ns() as f64;
    let (one, many) = (ns(8), ns(1024));
    let ring_ns = 1000.0 * cluster.network.latency_us * (1024.0 - 8.0);
    // Seven eighths of the bytes leave a rank of 8, nearly all of 1,024: the time of bytes grows by at most 8/7.
    let moved_ns = step(8, &["zero=1"], &software).on(&cluster).unwrap().spent.on(Loss::Data) as f64 / 7.0;
    assert!(many > one, "{one} {many}");
    assert!(many - one <= 2.0 * ring_ns + 2.0 * moved_ns, "{one} {many}: {ring_ns} {moved_ns}");
}

/// Over a network on which a unit is gathered in less than it computes, gathers that overlap with the next forward
/// pass leave those that the first pass waits for.
#[test]
fn gathers_that_overlap_with_the_next_forward_pass_hide() {
    let (mut cluster, overlapped) = (cluster(), trainer("megatron-core-2025"));
    cluster.network.gb_per_s = 2000.0;
    let after = Software { updated_gathers: UpdatedGathers::AfterUpdate, ..overlapped.clone() };
    let exposed = |software: &Software| {
        let prediction = step(16, &["zero=1"], software).on(&cluster).unwrap();
        (prediction.step_ns(), prediction.spent.on(Loss::Data))
    };
    let ((hidden_ns, hidden), (shown_ns, shown)) = (exposed(&overlapped), exposed(&after));
    let gathers: u64 = [Unit::Table, Unit::Embedding, Unit::Head]
        .into_iter()
        .chain((0..24).map(Unit::Layer))
        .map(|unit| step(16, &["zero=1"], &overlapped).on(&cluster).unwrap().costs.state(unit).gather_ns)
        .sum();
    assert!(hidden_ns < shown_ns, "{hidden_ns} {shown_ns}");
    // Gathers follow updates one by one, so that some of them hide there as well.
    assert!(shown - hidden > gathers / 2, "{hidden} {shown}: {gathers}");
}

/// Transformer Engine's chunks overlap with products forward, too, and need sequence parallelism.
#[test]
fn chunks_of_tensor_collectives_overlap_with_products() {
    let (cluster, chunks) = (cluster(), trainer("nemo-2025"));
    let overlapped = Software { bucket_parameters: chunks.bucket_parameters, ..trainer("megatron-core-2025") };
    let tensor =
        |keys: &[&str], software: &Software| step(2, keys, software).on(&cluster).unwrap().spent.on(Loss::Tensor);
    // Over two ranks collectives are shorter than products: of each a quarter is left, forward and backward, and all
    // of the embedding's, which has no products: one of some hundred.
    let in_line = Software { tensor_collectives: TensorCollectives::InLine, ..overlapped.clone() };
    let pairs = ["zero=1", "tp=2", "sequence_parallel=true"];
    let (with, without) = (tensor(&pairs, &chunks) as f64, tensor(&pairs, &in_line) as f64);
    assert!((0.25..0.26).contains(&(with / without)), "{with} of {without}");
    assert_eq!(tensor(&["zero=1"], &chunks), tensor(&["zero=1"], &overlapped), "as without chunks");
}

/// Copies out of gathered buffers are between the kernels of passes: 4 bytes for each parameter and gather.
#[test]
fn copies_out_of_gathered_buffers_take_their_time_in_line() {
    let cluster = cluster();
    let copied = trainer("torchtitan-2024");
    let in_place = Software { gather_copy_bytes: 0.0, ..copied.clone() };
    let model = ["zero=3"];
    let prediction = |software: &Software| step(4, &model, software).on(&cluster).unwrap();
    let (copied, in_place) = (prediction(&copied), prediction(&in_place));
    let parameters = config::unique_parameters(&config(4, &model).model) as f64 / 8.0;
    let rate = cluster.accelerator.memory_gb_per_s * cluster.compute.memory_efficiency;
    let (microbatches, bytes) = (4.0, 4.0);
    // Layers are gathered twice for a microbatch, the table and the head's once, and kernels that a host bounds hide
    // some of it.
    let all_ns = microbatches * 2.0 * bytes * parameters / rate;
    let more = copied.spent.on(Loss::Kernels) as f64 - in_place.spent.on(Loss::Kernels) as f64;
    assert!(more > 0.0 && more <= all_ns, "{more} of {all_ns}");
    assert!(copied.step_ns() > in_place.step_ns());
}

/// Copies around gathers and scatters of tokens are between the kernels of passes: with sequence parallelism eight of a
/// layer, forward and backward, two of the embedding and the head, each of 4 bytes for an element of the whole tensor.
#[test]
fn copies_around_gathers_and_scatters_of_tokens_take_their_time_in_line() {
    let cluster = cluster();
    let copied = trainer("torchtitan-2024");
    let in_place = Software { token_copy_bytes: 0.0, ..copied.clone() };
    let kernels = |software: &Software, keys: &[&str]| {
        let step = step(1, &[&["tp=2"], keys].concat(), software);
        step.on(&cluster).unwrap().spent.on(Loss::Kernels) as f64
    };
    let more = |keys: &[&str]| kernels(&copied, keys) - kernels(&in_place, keys);
    assert_eq!(more(&[]), 0.0, "without sequence parallelism sums alone join ranks");
    let rate = cluster.accelerator.memory_gb_per_s * cluster.compute.memory_efficiency;
    let (microbatches, copies) = (4.0, 24.0 * 8.0);
    let copies_ns = microbatches * copies * 4.0 * (4.0 * 2048.0 * 4096.0) / rate;
    let share = more(&["sequence_parallel=true"]) / copies_ns;
    assert!((1.0..1.05).contains(&share), "{share} of those of the layers");
}

/// Ranks that update before the norm is known do not wait for the last one, which began last: that shortens a step
/// whose bubble is small, and none whose first rank is the last to end.
#[test]
fn without_a_barrier_steps_of_zero_bubble_schedules_are_shorter_and_those_of_1f1b_are_not() {
    let (cluster, free) = (cluster(), trainer("zero-bubble-2024"));
    let waiting = Software { updates: Updates::AfterNorm, ..free.clone() };
    let step_ns = |software: &Software, schedule: &[&str]| {
        let step = step(1, &[&["tp=1", "pp=8", "microbatch_size=1"], schedule].concat(), software);
        let prediction = step.on(&cluster).unwrap();
        assert_eq!(prediction.spent.step_ns(), prediction.step_ns());
        prediction.step_ns()
    };
    let longer = |schedule: &[&str]| step_ns(&waiting, schedule) as f64 / step_ns(&free, schedule) as f64;
    let automatic = ["schedule=\"zb-auto\"", "schedule_memory_percent=200"];
    let [plain, v, twice] = [longer(&[]), longer(&["schedule=\"zb-v\""]), longer(&automatic)];
    assert!((1.0..1.001).contains(&plain), "{plain}");
    assert!((1.0..1.05).contains(&v), "{v}");
    assert!((1.03..1.2).contains(&twice), "{twice}");
    // Transfers of 1F1B are in line there, which those of the others are not.
    let beside = Software { transfers: Transfers::Overlapped, ..free.clone() };
    assert!(step_ns(&free, &[]) > step_ns(&beside, &[]));
    assert_eq!(step_ns(&free, &automatic), step_ns(&beside, &automatic));
}
