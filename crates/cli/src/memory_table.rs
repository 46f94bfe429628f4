//! The planned memory as a table: one row per stage, one column per category.

use std::ops::RangeInclusive;

use program::Category;
use spec::Unit;
use train::Setup;

use crate::figures::bytes;
use crate::memory_need::largest_plan;

/// The layers of one stage; every stage has at least one.
pub fn layers(setup: &Setup, stage: usize) -> RangeInclusive<u32> {
    let layers = setup.program(stage).place.computing_units().filter_map(|unit| match unit {
        Unit::Layer(layer) => Some(layer),
        Unit::Table | Unit::Embedding | Unit::Head => None,
    });
    let layers: Vec<u32> = layers.collect();
    layers.first().copied().unwrap_or(0)..=layers.last().copied().unwrap_or(0)
}

/// Bytes of one rank of each stage, at the moment of its peak, with the categories that any stage has.
pub fn memory_table(setup: &Setup) -> String {
    let stages: Vec<Vec<(Category, usize)>> =
        (0..setup.parallelism.pp).map(|stage| largest_plan(setup, stage).categories()).collect();
    let mut categories: Vec<Category> =
        stages.iter().flatten().filter(|(_, bytes)| *bytes > 0).map(|(category, _)| *category).collect();
    categories.sort_unstable();
    categories.dedup();

    let mut header: Vec<String> = ["stage", "layers", "ranks"].map(str::to_string).to_vec();
    header.extend(categories.iter().map(Category::to_string));
    header.push("all".into());
    let ranks = setup.parallelism.dp * setup.parallelism.tp;
    let rows = stages.iter().enumerate().map(|(stage, sizes)| {
        let layers = layers(setup, stage);
        let mut row = vec![stage.to_string(), format!("{}-{}", layers.start(), layers.end()), ranks.to_string()];
        let size_of = |category| sizes.iter().find(|(own, _)| *own == category).map_or(0, |(_, bytes)| *bytes);
        row.extend(categories.iter().map(|category| bytes(size_of(*category) as u64)));
        row.push(bytes(largest_plan(setup, stage).arena_bytes() as u64));
        row
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    format!("bytes of one rank\n{}", aligned(&rows))
}

/// Columns to the right, two spaces between them.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}
