//! The section `[parallelism]`, and the degree that the number of ranks gives.

use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use super::{Files, context_parallel, schedule, zero};
use crate::data_spec::DataSpec;
use crate::degrees::Degrees;
use crate::model::ModelSpec;
use crate::parallelism::{FullRecompute, Overlap, Parallelism, Recompute, SavedInputs, SequenceParallel};
use crate::problem::Problem;

const RECOMPUTES: &Choices<RecomputeKind> =
    &[("none", RecomputeKind::None), ("selective", RecomputeKind::Selective), ("full", RecomputeKind::Full)];
const SAVED_INPUTS: &Choices<SavedInputs> = &[("whole", SavedInputs::Whole), ("sharded", SavedInputs::Sharded)];

/// Degrees of a run that names neither degrees nor ranks: dp, cp, tp, pp. Sequences are shared only where the run says
/// so.
const DEFAULT_DEGREES: [usize; 4] = [2, 1, 2, 2];

/// [`Recompute`] without what only the full form has.
#[derive(Clone, Copy, PartialEq)]
enum RecomputeKind {
    None,
    Selective,
    Full,
}

/// Reads the section. `ranks` is the number of ranks, if the run names it.
pub fn read(
    reader: &mut Reader,
    ranks: Option<usize>,
    (data, model): (&DataSpec, &ModelSpec),
    files: &dyn Files,
) -> Parallelism {
    let degrees = degrees(reader, ranks);
    let context = context_parallel::read(reader, degrees, data, model);
    let sequence_parallel = match reader.yes_no("parallelism.sequence_parallel", false) {
        true => SequenceParallel::On,
        false => SequenceParallel::Off,
    };
    Parallelism {
        degrees,
        context,
        sequence_parallel,
        zero: zero::read(reader),
        shard_group: zero::read_shard_group(reader),
        sum_tree: reader.count("parallelism.sum_tree", 1),
        schedule: schedule::read(reader, files),
        microbatch_size: reader.count("parallelism.microbatch_size", 2),
        recompute: recompute(reader, sequence_parallel),
        stage_layers: reader.optional_counts("parallelism.stage_layers"),
        overlap: overlap(reader),
    }
}

fn overlap(reader: &mut Reader) -> Option<Overlap> {
    // Without the key it is as the device likes it.
    let key = "parallelism.overlap";
    let given = reader.is_set(key);
    let overlap = if reader.yes_no(key, false) { Overlap::On } else { Overlap::Off };
    given.then_some(overlap)
}

/// With sequence parallelism, inputs are sharded by default, for they are so already.
fn recompute(reader: &mut Reader, sequence_parallel: SequenceParallel) -> Recompute {
    let kind = reader.choice("parallelism.recompute", RECOMPUTES, RecomputeKind::None);
    let every = reader.count("parallelism.recompute_every", 1);
    let as_they_are = match sequence_parallel {
        SequenceParallel::Off => SavedInputs::Whole,
        SequenceParallel::On => SavedInputs::Sharded,
    };
    let inputs = reader.choice("parallelism.recompute_inputs", SAVED_INPUTS, as_they_are);
    let short = match kind {
        RecomputeKind::None => Recompute::None,
        RecomputeKind::Selective => Recompute::Selective,
        RecomputeKind::Full => return Recompute::Full(FullRecompute { every, inputs }),
    };
    for key in ["parallelism.recompute_every", "parallelism.recompute_inputs"] {
        if reader.is_set(key) {
            let rule = format!("has no effect where parallelism.recompute = \"{}\"", name_of(RECOMPUTES, kind));
            let remedy = "write parallelism.recompute = \"full\", or leave it out";
            reader.report(Problem::of_key(key, rule, remedy));
        }
    }
    short
}

/// Without `run.ranks` a degree that is left out is 2, or 1 for cp. With it, the degree that is left out is what the
/// others leave; where several are left out, data parallelism takes what is left and the others are 1. cp is 1 wherever
/// it is left out.
fn degrees(reader: &mut Reader, ranks: Option<usize>) -> Degrees {
    let keys = ["parallelism.dp", "parallelism.cp", "parallelism.tp", "parallelism.pp"];
    let of = |[dp, cp, tp, pp]: [usize; 4]| Degrees { dp, cp, tp, pp };
    let given = keys.map(|key| reader.optional_count(key));
    let is_missing = |axis: &usize| keys[*axis] != "parallelism.cp" && !reader.is_set(keys[*axis]);
    let missing: Vec<usize> = (0..keys.len()).filter(is_missing).collect();
    let (Some(ranks), Some(inferred)) = (ranks, missing.first()) else {
        let mut degrees = DEFAULT_DEGREES;
        degrees.iter_mut().zip(given).for_each(|(degree, given)| *degree = given.unwrap_or(*degree));
        return of(degrees);
    };
    let mut degrees = given.map(|degree| degree.unwrap_or(1));
    let others = of(degrees).world_size();
    if others == 0 || !ranks.is_multiple_of(others) {
        let named: Vec<String> =
            keys.iter().zip(given).filter_map(|(key, degree)| Some(format!("{key} = {}", degree?))).collect();
        let remedy = if others == 0 { String::new() } else { format!("use {}", nearest_multiples(ranks, others)) };
        let rule = format!("must be a multiple of {}", named.join(" x "));
        reader.report(Problem::of_value("run.ranks", ranks, rule, remedy));
        // One verdict is enough: the degrees stand for themselves from here on.
        reader.unusable.insert("run.ranks".into());
    }
    degrees[*inferred] = ranks.checked_div(others).unwrap_or(1).max(1);
    of(degrees)
}

fn nearest_multiples(number: usize, factor: usize) -> String {
    let below = number / factor * factor;
    let multiples: Vec<usize> = [below, below + factor].into_iter().filter(|multiple| *multiple > 0).collect();
    mesh::alternatives(&multiples)
}

/// Writes the section.
pub fn write(parallelism: &Parallelism, writer: &mut Writer) {
    writer.section("parallelism");
    for (key, degree) in parallelism.degrees.listed() {
        writer.count(key, degree);
    }
    if parallelism.degrees.cp > 1 {
        context_parallel::write(parallelism.context, writer);
    }
    writer.yes_no("sequence_parallel", parallelism.sequence_parallel == SequenceParallel::On);
    zero::write(parallelism, writer);
    if parallelism.sum_tree != 1 {
        writer.count("sum_tree", parallelism.sum_tree);
    }
    schedule::write(&parallelism.schedule, writer);
    writer.count("microbatch_size", parallelism.microbatch_size);
    match parallelism.recompute {
        Recompute::None => writer.text("recompute", name_of(RECOMPUTES, RecomputeKind::None)),
        Recompute::Selective => writer.text("recompute", name_of(RECOMPUTES, RecomputeKind::Selective)),
        Recompute::Full(FullRecompute { every, inputs }) => {
            writer.text("recompute", name_of(RECOMPUTES, RecomputeKind::Full));
            writer.count("recompute_every", every);
            writer.text("recompute_inputs", name_of(SAVED_INPUTS, inputs));
        }
    }
    if let Some(overlap) = parallelism.overlap {
        writer.yes_no("overlap", overlap == Overlap::On);
    }
    if let Some(layers) = &parallelism.stage_layers {
        let layers: Vec<String> = layers.iter().map(usize::to_string).collect();
        writer.bare("stage_layers", &format!("[{}]", layers.join(", ")));
    }
}
