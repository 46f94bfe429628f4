//! The keys of `[parallelism]` that say what is sharded over data parallelism, and how.

use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::parallelism::Parallelism;
use crate::problem::Problem;
use crate::zero::{Gathering, GradientReduction, Reshard, ZeroStage};

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Off,
    One,
    Two,
    Three,
}

const STAGES: &Choices<Stage> = &[("0", Stage::Off), ("1", Stage::One), ("2", Stage::Two), ("3", Stage::Three)];
const REDUCTIONS: &Choices<GradientReduction> =
    &[("step", GradientReduction::Step), ("microbatch", GradientReduction::Microbatch)];
const RESHARDS: &Choices<Reshard> = &[("after-use", Reshard::AfterUse), ("after-backward", Reshard::AfterBackward)];

/// Keys that some stages lack, each with the stages that have it as the remedy names them.
const KEYS_OF_STAGES: [(&str, &[Stage], &str); 4] = [
    ("parallelism.shard_group", &[Stage::One, Stage::Two, Stage::Three], "1, 2 or 3"),
    ("parallelism.reduce", &[Stage::Two, Stage::Three], "2 or 3"),
    ("parallelism.prefetch", &[Stage::Three], "3"),
    ("parallelism.reshard", &[Stage::Three], "3"),
];

/// Reads the stage and the keys that it has.
pub fn read(reader: &mut Reader) -> ZeroStage {
    let stage = reader.choice("parallelism.zero", STAGES, Stage::One);
    let reduce = reader.choice("parallelism.reduce", REDUCTIONS, GradientReduction::Step);
    let gathering = Gathering {
        prefetch: reader.count("parallelism.prefetch", 1),
        reshard: reader.choice("parallelism.reshard", RESHARDS, Reshard::AfterUse),
    };
    for (key, stages, named) in KEYS_OF_STAGES {
        if reader.is_set(key) && !stages.contains(&stage) {
            let rule = format!("has no effect where parallelism.zero = {}", name_of(STAGES, stage));
            reader.report(Problem::of_key(key, rule, format!("write parallelism.zero = {named}, or leave it out")));
        }
    }
    match stage {
        Stage::Off => ZeroStage::Off,
        Stage::One => ZeroStage::One,
        Stage::Two => ZeroStage::Two { reduce },
        Stage::Three => ZeroStage::Three { reduce, gathering },
    }
}

/// Reads the size of a sharding group.
pub fn read_shard_group(reader: &mut Reader) -> Option<usize> {
    reader.optional_count("parallelism.shard_group")
}

/// Writes every key that has a meaning for this stage.
pub fn write(parallelism: &Parallelism, writer: &mut Writer) {
    let (stage, gathering) = match parallelism.zero {
        ZeroStage::Off => (Stage::Off, None),
        ZeroStage::One => (Stage::One, None),
        ZeroStage::Two { .. } => (Stage::Two, None),
        ZeroStage::Three { gathering, .. } => (Stage::Three, Some(gathering)),
    };
    writer.bare("zero", name_of(STAGES, stage));
    if let Some(ranks) = parallelism.shard_group.filter(|_| stage != Stage::Off) {
        writer.count("shard_group", ranks);
    }
    match parallelism.zero {
        ZeroStage::Off | ZeroStage::One => {}
        ZeroStage::Two { reduce } | ZeroStage::Three { reduce, .. } => {
            writer.text("reduce", name_of(REDUCTIONS, reduce));
        }
    }
    if let Some(Gathering { prefetch, reshard }) = gathering {
        writer.count("prefetch", prefetch);
        writer.text("reshard", name_of(RESHARDS, reshard));
    }
}
