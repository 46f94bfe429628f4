//! Who holds which experts, in words.

use config::SharedGate;
use mesh::Rank;

use crate::explain::expert_map::{ExpertMap, ExpertRow, layers, numbers};
use crate::explain::mesh_text::braces;

/// Groups of ranks that are written out.
const SHOWN: usize = 4;

/// A row for the experts of each tensor-parallel rank, with a column for each pipeline rank that has layers of them.
pub fn experts(map: &ExpertMap) -> String {
    let ExpertMap { experts, rows, layers: of_stages, sums } = map;
    let stages: Vec<usize> = (0..of_stages.len()).filter(|stage| !of_stages[*stage].is_empty()).collect();
    let mut text =
        format!("experts: {} a layer, {} for each token{}\n", experts.number, experts.per_token, shared(map));
    let head = |stage: &usize| match of_stages.len() {
        1 => layers(&of_stages[*stage]),
        _ => format!("{} (pp {stage})", layers(&of_stages[*stage])),
    };
    let names: Vec<String> = rows.iter().map(|row| numbers(&row.held)).collect();
    let heads: Vec<String> = stages.iter().map(head).collect();
    let of_row = |row: &ExpertRow| stages.iter().map(|stage| braces(&row.ranks[*stage])).collect::<Vec<String>>();
    let held: Vec<Vec<String>> = rows.iter().map(of_row).collect();
    let first = names.iter().map(String::len).chain(["expert".len()]).max().unwrap_or(0);
    let width = |column: usize| held.iter().map(|row| row[column].len()).max().unwrap_or(0).max(heads[column].len());
    let line = |name: &str, cells: &[String]| {
        let cells: Vec<String> = (0..cells.len()).map(|at| format!("{:<1$}", cells[at], width(at))).collect();
        format!("  {name:<first$}  {}\n", cells.join("  ").trim_end())
    };
    text += &line("expert", &heads);
    for (name, cells) in names.iter().zip(&held) {
        text += &line(name, cells);
    }
    if !sums.is_empty() {
        let shown: Vec<String> = sums.iter().take(SHOWN).map(|members| braces(members)).collect();
        let more = if sums.len() > SHOWN { format!(" and {} more", sums.len() - SHOWN) } else { String::new() };
        text += &format!("  gradients of an expert are summed over {}{more}\n", shown.join(" "));
    }
    text
}

fn shared(map: &ExpertMap) -> String {
    match map.experts.shared.map(|shared| shared.gate) {
        None => String::new(),
        Some(SharedGate::Open) => {
            ", and one that all tokens go through, a part of it on each tensor-parallel rank".into()
        }
        Some(SharedGate::Learned) => {
            ", and one with a gate that all tokens go through, a part of it on each tensor-parallel rank".into()
        }
    }
}

/// The experts of `rank`, as a line; empty where it has none.
pub fn of_rank(map: &ExpertMap, rank: Rank) -> String {
    let line = |(held, of): (_, &[u32])| {
        format!("  holds experts {} of {} in {}\n", numbers(&held), map.experts.number, layers(of))
    };
    map.of_rank(rank).map(line).unwrap_or_default()
}
