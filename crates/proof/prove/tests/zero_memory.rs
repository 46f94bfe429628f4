//! Memory that the stages of ZeRO save: planned bytes against the formulas of the ZeRO paper, in single precision.
//!
//! With P parameters on a tensor- and pipeline-parallel rank and d replicas in a sharding group, a rank keeps 4 bytes
//! for each parameter, 4 for its gradient and 8 for its moments: 16 P; with ZeRO-1 8 P + 8 P / d; with ZeRO-2 4 P + 12
//! P / d; with ZeRO-3 16 P / d. An exact sum of gradients takes 8 bytes in place of 4. That the arena is what
//! operations touch is held by `conservation`.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{
    Gathering, GradientReduction, GradientSums, Kept, LinearLayer, LoraSpec, ModelSpec, Parallelism, Reshard,
    StateKind, TrainSpec, ZeroStage,
};
use program::{Category, RankPlan, Value};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use train::Setup;

/// Larger differences are explained.
const LARGEST_SHARE: f64 = 0.02;

/// Layers of 198,000 parameters, a vocabulary of 257.
fn model(tied: bool) -> ModelSpec {
    let small = proof_model(Style::Gpt2, 12, tied);
    ModelSpec { num_layers: 8, hidden: 132, head_dim: 11, ffn_hidden: 528, context: 64, ..small }
}

fn train(sums: GradientSums) -> TrainSpec {
    TrainSpec { global_batch: 24, sequence_length: 64, sums, ..proof_training() }
}

fn three(reduce: GradientReduction, prefetch: usize, reshard: Reshard) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } }
}

fn stages() -> [(&'static str, ZeroStage); 6] {
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    [
        ("off", ZeroStage::Off),
        ("1", ZeroStage::One),
        ("2", ZeroStage::Two { reduce: step }),
        ("2 per microbatch", ZeroStage::Two { reduce: microbatch }),
        ("3", three(step, 1, Reshard::AfterUse)),
        ("3 per microbatch", three(microbatch, 1, Reshard::AfterUse)),
    ]
}

/// Bytes of state by the formula.
fn formula(zero: ZeroStage, sums: GradientSums, parameters: usize, group: usize) -> f64 {
    let kept = |state, bytes: usize| match zero.keeps(state) {
        Kept::Whole => (bytes * parameters) as f64,
        Kept::Shard => (bytes * parameters) as f64 / group as f64,
    };
    kept(StateKind::Parameters, 4) + kept(StateKind::Gradients, sums.size_bytes()) + kept(StateKind::Optimizer, 8)
}

/// Bytes of parameters, sums of gradients and moments in a plan.
fn kept(plan: &RankPlan) -> usize {
    let state = plan.state().iter().filter(|(value, _)| !matches!(value, Value::Constants | Value::LossSums));
    let sums = plan.lives().iter().filter(|life| matches!(life.value, Value::Reduced { .. }));
    let bytes = state.map(|(_, extent)| extent.len_bytes).chain(sums.map(|life| life.extent.len_bytes));
    bytes.sum()
}

/// Memory that the formula leaves out: units are padded to whole blocks for every replica, and a tied table whose uses
/// share a rank has a gradient for each.
fn left_out(setup: &Setup, stage: usize) -> (f64, f64) {
    let (zero, sums, group) = (setup.parallelism.zero, setup.train.sums, setup.parallelism.shard_group());
    let view = &setup.program(stage).view;
    let padding: usize =
        view.parameter_units().map(|unit| setup.layouts[&unit].padded_len() - setup.layouts[&unit].len).sum();
    let second = view.accumulators().count() - view.parameter_units().count();
    let table = setup.layouts[&config::Unit::Table].padded_len() * second * sums.size_bytes();
    let table_bytes = match zero.keeps(StateKind::Gradients) {
        Kept::Whole => table as f64,
        Kept::Shard => table as f64 / group as f64,
    };
    (formula(zero, sums, padding, group), table_bytes)
}

/// The most bytes of a category that are alive at once.
fn most(plan: &RankPlan, category: Category) -> usize {
    let lives = || plan.lives().iter().filter(move |life| life.category == category);
    let alive_at =
        |at: usize| lives().filter(|life| life.start <= at && at < life.end).map(|life| life.extent.len_bytes).sum();
    lives().map(|life| alive_at(life.start)).max().unwrap_or(0)
}

fn layouts() -> Vec<(&'static str, bool, Parallelism)> {
    let in_groups = Parallelism { shard_group: Some(2), ..plain_layout(4, 1, 1, 1) };
    vec![
        ("dp 2, untied", false, plain_layout(2, 1, 1, 1)),
        ("dp 4, untied", false, plain_layout(4, 1, 1, 1)),
        ("dp 4, tied", true, plain_layout(4, 1, 1, 1)),
        ("dp 4 in groups of 2, untied", false, in_groups),
        ("dp 2 x tp 2, untied", false, plain_layout(2, 2, 1, 1)),
        ("dp 2 x pp 2, tied", true, plain_layout(2, 1, 2, 1)),
        ("dp 2 x tp 2 x pp 4, tied", true, plain_layout(2, 2, 4, 1)),
    ]
}

#[test]
fn each_stage_keeps_what_its_formula_says() {
    println!("{:28} {:18} {:>12} {:>12} {:>7}", "rank 0 of", "ZeRO", "formula", "planned", "more");
    // Only sums are larger, so replicas show it.
    let replicas = layouts().into_iter().filter(|(_, _, plain)| plain.degrees.dp == 4).collect();
    for (sums, layouts) in [(GradientSums::Single, layouts()), (GradientSums::Exact, replicas)] {
        for (name, tied, plain) in layouts {
            for (stage_name, zero) in stages() {
                let setup = Setup::new(model(tied), Parallelism { zero, ..plain.clone() }, train(sums)).unwrap();
                for stage in 0..plain.degrees.pp {
                    println!("{}", kept_line(&format!("{name:28} {stage_name:18}"), &setup, stage));
                }
            }
        }
    }
}

/// Asserts that the plan of a rank of `stage` keeps what the formula says, and explains what is more.
fn kept_line(name: &str, setup: &Setup, stage: usize) -> String {
    let (zero, sums, group) = (setup.parallelism.zero, setup.train.sums, setup.parallelism.shard_group());
    let parameters = setup.program(stage).view.parameter_units().map(|unit| setup.layouts[&unit].len).sum();
    let (expected, planned) = (formula(zero, sums, parameters, group), kept(setup.plan(stage)) as f64);
    let (padding, second_table) = left_out(setup, stage);
    assert_eq!(planned, expected + padding + second_table, "{name}, {sums:?}, stage {stage}");
    let share = planned / expected - 1.0;
    let mut line = format!("{name} {expected:12.0} {planned:12.0} {:6.2}%", 100.0 * share);
    if share > LARGEST_SHARE {
        line += &format!(": {padding:.0} of padding, {second_table:.0} of the table's second gradient");
    }
    line
}

/// Gathered values on top: with ZeRO-2 gradients, all of the stage's between the first and the last microbatch, or
/// those of one use (the head's and a layer's) where each is summed at once; with ZeRO-3 the parameters of two uses.
#[test]
fn little_more_is_whole_at_once_than_what_computes() {
    for (name, tied, plain) in layouts() {
        for (stage_name, zero) in stages() {
            let setup =
                Setup::new(model(tied), Parallelism { zero, ..plain.clone() }, train(GradientSums::Single)).unwrap();
            for stage in 0..plain.degrees.pp {
                let (plan, view) = (setup.plan(stage), &setup.program(stage).view);
                let whole = |unit| 4 * setup.layouts[&unit].padded_len();
                let of_use = |by| view.reads_parameters_of(by).map(whole).sum::<usize>();
                let mut uses: Vec<usize> = view.computing_units().map(of_use).collect();
                uses.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
                let (gathered, unreduced) = (most(plan, Category::Gathered), most(plan, Category::Unreduced));
                let all: usize = uses.iter().sum();
                let (most_gathered, most_unreduced) = match zero {
                    ZeroStage::Off | ZeroStage::One => (0, 0),
                    ZeroStage::Two { reduce: GradientReduction::Step } => (0, all),
                    ZeroStage::Two { reduce: GradientReduction::Microbatch } => (0, uses[0]),
                    ZeroStage::Three { reduce: GradientReduction::Step, .. } => (uses[0] + uses[1], all),
                    ZeroStage::Three { reduce: GradientReduction::Microbatch, .. } => (uses[0] + uses[1], uses[0]),
                };
                let found = format!("{name}, {stage_name}, stage {stage}: gathered {gathered}, unreduced {unreduced}");
                assert!(gathered <= most_gathered && unreduced <= most_unreduced, "{found}");
                println!("{found}, arena {}", plan.arena_bytes());
            }
        }
    }
}

/// The arena shrinks by what the formulas save, less what is gathered: at least, for sums of gradients that begin with
/// their reduction take the places of activations. A stage of two layers has nothing to gain from sharding parameters
/// of which two layers are whole at once.
#[test]
fn each_stage_makes_the_arena_smaller() {
    for (name, tied, plain) in layouts() {
        let setup =
            |zero| Setup::new(model(tied), Parallelism { zero, ..plain.clone() }, train(GradientSums::Single)).unwrap();
        let off = setup(ZeroStage::Off);
        let mut arenas = vec![];
        for (stage_name, zero) in stages() {
            let setup = setup(zero);
            let plan = setup.plan(0);
            let saved = kept(off.plan(0)) as f64 - kept(plan) as f64;
            let whole = (most(plan, Category::Gathered) + most(plan, Category::Unreduced)) as f64;
            let (arena_off, arena) = (off.plan(0).arena_bytes() as f64, plan.arena_bytes() as f64);
            println!(
                "{name:28} {stage_name:18} arena {arena:9} saves {:9}, state {saved:9}, gathered {whole:9}",
                arena_off - arena
            );
            assert!(arena_off - arena >= saved - whole - LARGEST_SHARE * arena_off, "{name}, {stage_name}");
            arenas.push(arena);
        }
        let [off, one, two, two_each, three, three_each] = arenas[..] else { panic!("six stages") };
        // Summed once a step, all gradients of a stage are whole before its last backward pass: ZeRO-2 saves what they
        // do not take before the first.
        assert!(off > one && one * (1.0 + LARGEST_SHARE) > two && two > two_each, "{name}: {arenas:?}");
        assert!(plain.degrees.pp == 4 || two > three && two_each > three_each, "{name}: {arenas:?}");
    }
}

/// Frozen weights have no sums of gradients and no moments: to the byte, a rank keeps its weights and the state of its
/// adapters.
#[test]
fn adapters_alone_have_gradients_and_moments() {
    let lora = LoraSpec { rank: 5, alpha: 5.0, targets: vec![LinearLayer::Query, LinearLayer::Up, LinearLayer::Down] };
    for (name, tied, plain) in layouts() {
        for (stage_name, zero) in stages() {
            if let ZeroStage::Three { .. } = zero {
                continue;
            }
            let model = ModelSpec { lora: Some(lora.clone()), ..model(tied) };
            let parallelism = Parallelism { zero, ..plain.clone() };
            let setup = Setup::new(model.clone(), parallelism.clone(), train(GradientSums::Single)).unwrap();
            let averaged = TrainSpec { ema_decay: Some(0.9), ..train(GradientSums::Single) };
            let averaged = Setup::new(model, parallelism, averaged).unwrap();
            for stage in 0..plain.degrees.pp {
                let view = &setup.program(stage).view;
                let padded = |unit: config::Unit| setup.layouts[&unit].padded_len();
                let weights: usize = view.parameter_units().map(|unit| 4 * padded(unit)).sum();
                let adapters: usize = view.trained_units().map(padded).sum();
                let shared = |state, bytes: usize| match zero.keeps(state) {
                    Kept::Whole => bytes * adapters,
                    Kept::Shard => bytes * adapters / setup.parallelism.shard_group(),
                };
                let expected = weights + shared(StateKind::Gradients, 4) + shared(StateKind::Optimizer, 8);
                assert_eq!(kept(setup.plan(stage)), expected, "{name}, ZeRO {stage_name}, stage {stage}");
                let with_averages = expected + shared(StateKind::Optimizer, 4);
                assert_eq!(kept(averaged.plan(stage)), with_averages, "{name}, ZeRO {stage_name}, stage {stage}");
                assert!(view.trained_units().all(|unit| matches!(unit, config::Unit::Adapters(_))));
                assert!(adapters > 0 && !view.sums_tied(), "{name}");
            }
        }
    }
}
