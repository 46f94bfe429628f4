//! The planned memory as a table: one row per stage, one column per category.

use config::figures::bytes;
use config::{Overlap, Unit};
use program::Category;
use run::memory::need::largest_plan;
use train::Setup;

use crate::screen::narrow::table;

/// The layers of one pipeline rank, ascending; none where it has only the embedding or the head.
pub fn layers(setup: &Setup, stage: usize) -> Vec<u32> {
    let layers = setup.program(stage).view.computing_units().filter_map(|unit| match unit {
        Unit::Layer(layer) => Some(layer),
        Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => None,
    });
    let mut layers: Vec<u32> = layers.collect();
    layers.sort_unstable();
    layers
}

/// Ascending layers with neighbours as ranges: `0-2,6`.
fn ranges(layers: &[u32]) -> String {
    let parts = layers.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(u32::to_string).collect(),
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "none".into() } else { parts.join(",") }
}

/// Bytes of one rank of each stage, at the moment of its peak, with the categories that any stage has, in `columns`
/// columns.
pub fn memory_table(setup: &Setup, columns: Option<usize>) -> String {
    let stages: Vec<Vec<(Category, usize)>> =
        (0..setup.parallelism.degrees.pp).map(|stage| largest_plan(setup, stage).categories()).collect();
    let mut categories: Vec<Category> =
        stages.iter().flatten().filter(|(_, bytes)| *bytes > 0).map(|(category, _)| *category).collect();
    categories.sort_unstable();
    categories.dedup();

    let mut header: Vec<String> = ["stage", "layers", "ranks"].map(str::to_string).to_vec();
    header.extend(categories.iter().map(Category::to_string));
    header.push("all".into());
    let ranks = setup.mesh.ranks_per_stage();
    let rows = stages.iter().enumerate().map(|(stage, sizes)| {
        let mut row = vec![stage.to_string(), ranges(&layers(setup, stage)), ranks.to_string()];
        let size_of = |category| sizes.iter().find(|(own, _)| *own == category).map_or(0, |(_, bytes)| *bytes);
        row.extend(categories.iter().map(|category| bytes(size_of(*category) as u64)));
        row.push(bytes(largest_plan(setup, stage).arena_bytes() as u64));
        row
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let table = table(&rows, columns);
    format!("bytes of one rank\n{table}{}{}{}", on_host(setup), of_overlap(setup), beyond_training(setup))
}

/// The state of a rank of each stage in memory of its host; nothing where all is in arenas.
fn on_host(setup: &Setup) -> String {
    let stages = (0..setup.parallelism.degrees.pp).map(|stage| setup.plan(stage).host_bytes());
    let stages: Vec<String> = stages
        .enumerate()
        .filter(|(_, own)| *own > 0)
        .map(|(stage, own)| format!("{} on stage {stage}", bytes(own as u64)))
        .collect();
    if stages.is_empty() {
        return String::new();
    }
    format!("\nIn memory of the host, in addition, train.offload keeps for one rank {}.\n", stages.join(", "))
}

/// The bytes that overlap adds; nothing where the run has none.
fn of_overlap(setup: &Setup) -> String {
    match setup.verified().overlap() {
        Overlap::Off => String::new(),
        Overlap::On => {
            let most = setup.verified().overlap_bytes().iter().copied().max().unwrap_or(0);
            format!("\nparallelism.overlap = true adds {} to the arena of a rank at most.\n", bytes(most as u64))
        }
    }
}

/// The need of training alone, if the peak is that of a measurement; empty otherwise.
fn beyond_training(setup: &Setup) -> String {
    let stages = 0..setup.parallelism.degrees.pp;
    let Some(stage) = stages.rev().max_by_key(|stage| largest_plan(setup, *stage).arena_bytes()) else {
        return String::new();
    };
    let (most, training) = (largest_plan(setup, stage).arena_bytes(), setup.plan(stage));
    if most == training.arena_bytes() {
        return String::new();
    }
    let [training, alive] = [training.arena_bytes(), training.largest_live_bytes()].map(|size| bytes(size as u64));
    format!(
        "\nThe held-out loss needs the most memory on stage {stage}. A training step needs {training} there; {alive} of it are in \
         use at the same time, as `pleach simulate` counts.\n"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::RunConfig;

    use super::*;
    use run::presets;

    #[test]
    fn layers_that_are_no_neighbours_are_named_apart() {
        assert_eq!(ranges(&[0, 1, 2]), "0-2");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 2, 4]), "0,2,4");
        assert_eq!(ranges(&[0, 1, 6, 7]), "0-1,6-7");
        assert_eq!(ranges(&[]), "none");
    }

    /// The planned and the predicted memory of a training step are equal.
    #[test]
    fn simulated_memory_is_that_of_the_plan_without_gaps() {
        let evaluation_decides =
            [("bloom-176b", true), ("gpt-neox-20b", false), ("opt-175b-tiny", false), ("mt-nlg-530b-tiny", true)];
        for (name, is_shown) in evaluation_decides {
            let preset = presets::named(Path::new(&format!("preset:{name}"))).expect("known").expect("a preset");
            let RunConfig { model, parallelism, mut train, run, .. } =
                RunConfig::load(name, preset.text, &[]).expect("a legal run");
            train.batch_ramp = None;
            let step = plan::PreparedStep::new(&model, &parallelism, &train, None).expect("planned");
            let setup = Setup::of_run(model, parallelism, train, &run.samples).expect("planned");
            let predicted: Vec<usize> = step.memory().iter().map(sim::RankMemory::occupied_bytes).collect();
            let planned: Vec<usize> =
                (0..setup.parallelism.degrees.pp).map(|stage| setup.plan(stage).largest_live_bytes()).collect();
            assert_eq!(predicted, planned, "{name}");
            assert_eq!(memory_table(&setup, None).contains("The held-out loss needs"), is_shown, "{name}");
        }
    }
}
