//! The section `[parallelism]`, and the degree that the number of ranks gives.

use std::path::Path;

use super::Files;
use super::keys::{Keys, Variants, keys, where_all, where_first, without};
use crate::context_parallel::{ContextKind, ContextParallel};
use crate::data_spec::DataSpec;
use crate::degrees::Degrees;
use crate::model::ModelSpec;
use crate::names::Names;
use crate::parallelism::{FullRecompute, Parallelism, Recompute, SavedInputs, SequenceParallel};
use crate::problem::Problem;
use crate::schedule::{GivenSchedule, ScheduleKind, ScheduleSpec};
use crate::trusted::Consequence;
use crate::zero::{Gathering, GradientReduction, Reshard, ZeroStage};

/// Values of other sections from which keys of this one follow.
pub struct Others<'a> {
    /// The number of ranks, if the run names it.
    pub ranks: Option<usize>,
    pub data: &'a DataSpec,
    pub model: &'a ModelSpec,
    /// Where schedules are read.
    pub files: &'a dyn Files,
}

keys! { keys, own: Parallelism, others: &Others<'_>;
    // Those of a run that names neither degrees nor ranks.
    degrees = Degrees { dp: 2, cp: 1, tp: 2, pp: 2 } => { degrees(keys, &mut own.degrees, others.ranks) };
    context = ContextParallel::DEFAULT => {
        if !(keys.writes() && own.degrees.cp == 1) {
            context(keys, own, others);
        }
    };
    [quiet] ep = 1, .positive().megatron("expert_model_parallel_size");
    sequence_parallel = SequenceParallel::Off;
    shard_group = None => {};
    zero = ZeroStage::One => { zero(keys, own) };
    [quiet] sum_tree = 1, .positive();
    schedule = ScheduleKind::OneForwardOneBackward.into() => { schedule(keys, &mut own.schedule, others.files) };
    microbatch_size = 2, .positive().megatron("micro_batch_size");
    recompute = Recompute::None => { recompute(keys, own) };
    // Without the key it is as the device likes it.
    overlap = None, .megatron("overlap_grad_reduce: it covers gathers and transfers as well");
    stage_layers = None, .megatron("pipeline_model_parallel_layout: a list of layer counts")
        .megatron("decoder_first_pipeline_num_layers: a list of layer counts")
        .megatron("decoder_last_pipeline_num_layers: a list of layer counts");
}

/// Without `run.ranks` a degree that is left out is 2, or 1 for cp. With it, the degree that is left out is what the
/// others leave; where several are left out, data parallelism takes what is left and the others are 1. cp is 1 wherever
/// it is left out.
fn degrees(keys: &mut Keys<'_>, degrees: &mut Degrees, ranks: Option<usize>) {
    const NAMES: [&str; 4] = ["dp", "cp", "tp", "pp"];
    let given = [
        keys.key("dp", &mut degrees.dp).positive().megatron("data_parallel_size").given(),
        keys.key_unless(1, "cp", &mut degrees.cp).positive().megatron("context_parallel_size").given(),
        keys.key("tp", &mut degrees.tp).positive().megatron("tensor_model_parallel_size").given(),
        keys.key("pp", &mut degrees.pp).positive().megatron("pipeline_model_parallel_size").given(),
    ];
    let inferred = NAMES.iter().position(|name| *name != "cp" && !keys.is_set(name));
    let (Some(ranks), Some(inferred), Some(reader)) = (ranks, inferred, keys.reader()) else { return };
    let Degrees { dp, cp, tp, pp } = degrees;
    let mut slots = [dp, cp, tp, pp];
    slots.iter_mut().zip(given).filter(|(_, given)| !given).for_each(|(degree, _)| **degree = 1);
    let others: usize = slots.iter().map(|degree| **degree).fold(1, usize::saturating_mul);
    if others == 0 || !ranks.is_multiple_of(others) {
        let named = NAMES.iter().zip(&slots).zip(given).filter(|(_, given)| *given);
        let named: Vec<String> = named.map(|((name, degree), _)| format!("parallelism.{name} = {degree}")).collect();
        let remedy = match others {
            0 => String::new(),
            _ => format!("use {}", mesh::multiples_around(others, ranks)),
        };
        let rule = format!("must be a multiple of {}", named.join(" x "));
        reader.report(Problem::of_value("run.ranks", ranks, rule, remedy));
        // One verdict is enough: the degrees stand for themselves from here on.
        reader.unusable.insert("run.ranks".into());
    }
    *slots[inferred] = ranks.checked_div(others).unwrap_or(1).max(1);
}

/// The value of `cp_kind` in a run file.
#[derive(Clone, Copy, PartialEq)]
enum RequestedKind {
    Kind(ContextKind),
    /// The cheapest that the heads allow.
    Auto,
}

impl Names for RequestedKind {
    const NAMES: &'static [(&'static str, RequestedKind)] = &[
        ("auto", RequestedKind::Auto),
        ("gather", RequestedKind::Kind(ContextKind::Gather)),
        ("heads", RequestedKind::Kind(ContextKind::Heads)),
        ("ring", RequestedKind::Kind(ContextKind::Ring)),
    ];
}

/// The name of a kind in run files.
pub fn context_kind_name(kind: ContextKind) -> &'static str {
    RequestedKind::Kind(kind).name_in_files()
}

fn context(keys: &mut Keys<'_>, own: &mut Parallelism, others: &Others<'_>) {
    let mut requested = RequestedKind::Kind(own.context.kind);
    keys.key("cp_kind", &mut requested)
        .megatron("cp_comm_type: \"all_gather\" is \"gather\", \"a2a\" is \"heads\", \"p2p\" is \"ring\"");
    let kind = match requested {
        RequestedKind::Kind(kind) => kind,
        RequestedKind::Auto => ContextKind::cheapest(others.model, own.degrees),
    };
    let chunks = ContextParallel::of(kind, others.data).chunks;
    own.context.kind = kind;
    keys.key("cp_chunks", &mut own.context.chunks).or(chunks);
}

fn zero(keys: &mut Keys<'_>, own: &mut Parallelism) {
    let (reduce, reshard) = (GradientReduction::Step, Reshard::AfterUse);
    let three = ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard } };
    let stages: &Variants<ZeroStage> =
        &[("0", ZeroStage::Off), ("1", ZeroStage::One), ("2", ZeroStage::Two { reduce }), ("3", three)];
    let shard_group = &mut own.shard_group;
    keys.variants("zero", &mut own.zero, stages, where_all, |keys, stage| {
        if *stage != ZeroStage::Off {
            keys.key("shard_group", shard_group)
                .megatron("num_distributed_optimizer_instances: write dp divided by it");
        }
        if let ZeroStage::Two { reduce } | ZeroStage::Three { reduce, .. } = stage {
            keys.key("reduce", reduce);
        }
        if let ZeroStage::Three { gathering: Gathering { prefetch, reshard }, .. } = stage {
            keys.key("prefetch", prefetch);
            keys.key("reshard", reshard).megatron("torch_fsdp2_no_reshard_after_forward: write \"after-backward\"");
        }
    });
    keys.megatron("zero", "use_distributed_optimizer: write 1");
    keys.megatron("zero", "data_parallel_sharding_strategy: optim is 1, optim_grads 2, optim_grads_params 3");
    keys.megatron("zero", "use_torch_fsdp2: write 3");
}

/// The schedule: by name, or from a file that `files` reads.
fn schedule(keys: &mut Keys<'_>, schedule: &mut ScheduleSpec, files: &dyn Files) {
    let (mut kind, mut path) = match &*schedule {
        ScheduleSpec::Generated(kind) => (Some(*kind), None),
        ScheduleSpec::Given(given) => (None, Some(given.path.clone())),
    };
    if let Some(kind) = &mut kind {
        keys.variants("schedule", kind, ScheduleKind::NAMED, without, |keys, kind| {
            if let ScheduleKind::Interleaved { stages_per_rank } = kind {
                keys.key("stages_per_rank", stages_per_rank)
                    .positive()
                    .megatron("virtual_pipeline_model_parallel_size")
                    .megatron("num_virtual_stages_per_pipeline_rank")
                    .megatron("num_layers_per_virtual_pipeline_stage: the number of stages, not of their layers");
            }
            if let ScheduleKind::ZeroBubbleAuto { memory_percent } = kind {
                keys.key("schedule_memory_percent", memory_percent);
            }
        });
    }
    let is_given = keys.judged(Consequence::Reads, "schedule_file", &mut path).given();
    let is_named = keys.is_set("schedule");
    let Some(reader) = keys.reader() else { return };
    *schedule = match (kind, path) {
        (_, Some(path)) if is_given => {
            if is_named {
                let rule = "and parallelism.schedule_file are both given";
                reader.report(Problem::of_key("parallelism.schedule", rule, "leave one of them out"));
            }
            let text = files.text(Path::new(&path)).unwrap_or_else(|reason| {
                let rule = format!("cannot be read: {reason}");
                reader.report(Problem::of_value("parallelism.schedule_file", format!("{path:?}"), rule, ""));
                String::new()
            });
            ScheduleSpec::Given(GivenSchedule { path, text })
        }
        (kind, _) => ScheduleSpec::Generated(kind.unwrap_or(ScheduleKind::OneForwardOneBackward)),
    };
}

/// With sequence parallelism, inputs are sharded by default, for they are so already.
fn recompute(keys: &mut Keys<'_>, own: &mut Parallelism) {
    let inputs = match own.sequence_parallel {
        SequenceParallel::Off => SavedInputs::Whole,
        SequenceParallel::On => SavedInputs::Sharded,
    };
    let full = Recompute::Full(FullRecompute { every: 1, inputs });
    let recomputes: &Variants<Recompute> =
        &[("none", Recompute::None), ("selective", Recompute::Selective), ("full", full)];
    keys.variants("recompute", &mut own.recompute, recomputes, where_first, |keys, recompute| {
        if let Recompute::Full(FullRecompute { every, inputs }) = recompute {
            let every = keys.key("recompute_every", every).positive();
            every.megatron("recompute_num_layers: N for every Nth layer");
            keys.key("recompute_inputs", inputs).megatron("distribute_saved_activations: write \"sharded\"");
        }
    });
    keys.megatron("recompute", "recompute_granularity");
    keys.megatron("recompute", "recompute_activations");
}
