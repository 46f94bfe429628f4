//! The mesh and its groups in words.

use std::collections::BTreeSet;

use config::figures::counted;
use config::{Degrees, GradientReduction, Kept, Parallelism, StateKind, Unit, UnitAxes, UnitLayout};
use mesh::{Axis, AxisSet, Rank};
use program::RankView;
use train::Setup;

/// The grid of ranks, and what each kind of group does.
pub fn mesh(setup: &Setup) -> String {
    let (mesh, parallelism) = (&setup.mesh, &setup.parallelism);
    let mut text = format!(
        "mesh of {}; tensor-parallel neighbours have consecutive numbers, stages are farthest apart\n",
        counted(mesh.world_size() as u64, "rank")
    );
    for stage in 0..parallelism.degrees.pp {
        for replica in 0..parallelism.degrees.dp {
            let members = mesh.ranks().filter(|rank| {
                let coord = mesh.coord(*rank);
                coord.along(Axis::Pp) == stage && coord.position(parallelism.sequence_axes()) == replica
            });
            let members: Vec<String> = members.map(|rank| format!("{:>3}", rank.0)).collect();
            text += &format!("  pp {stage}  dp {replica}  |{} |\n", members.join(" "));
        }
    }
    text += "groups\n";
    let kinds = kinds(setup);
    let width = kinds.iter().map(|(name, ..)| name.len() + 1).max().unwrap_or(0);
    for (name, axes, work) in kinds {
        let groups = mesh.groups(axes);
        let shown: Vec<String> = groups.iter().take(4).map(|members| braces(members)).collect();
        let more = if groups.len() > 4 { format!(" and {} more", groups.len() - 4) } else { String::new() };
        text += &format!("  {name:<width$} {work}: {}{more}\n", shown.join(" "));
    }
    text
}

/// The kinds of groups, each with what its ranks do.
fn kinds(setup: &Setup) -> Vec<(String, AxisSet, String)> {
    let zero = setup.parallelism.zero;
    let weights = match zero.keeps(StateKind::Parameters) {
        Kept::Whole => "hold the same weights",
        Kept::Shard => "hold shards of the same weights",
    };
    let sums = match zero.reduction() {
        GradientReduction::Step => "once a step",
        GradientReduction::Microbatch => "after each microbatch",
    };
    let Parallelism { sum_tree: tree, ep, degrees: Degrees { dp, .. }, .. } = setup.parallelism;
    let shared = "share every matrix and sum activations inside each layer";
    let mut kinds = vec![("tp".into(), setup.parallelism.tensor_axes(), shared.into())];
    if setup.parallelism.degrees.cp > 1 {
        let work = "share the tokens of every sequence, gather keys and values in each layer";
        kinds.push(("cp".into(), setup.parallelism.context_axes(), work.into()));
    }
    if setup.parallelism.ep > 1 {
        let work = "hold other experts, send rows to them and get their outputs in each layer with experts";
        kinds.push(("ep".into(), setup.parallelism.expert_axes(), work.into()));
    }
    let of_units: BTreeSet<UnitAxes> = setup.layouts.values().map(UnitLayout::axes).collect();
    for axes in of_units.into_iter().rev() {
        let of_experts = axes.data == UnitAxes::TOKENS && setup.parallelism.ep > 1;
        let of = if of_experts { " of experts" } else { "" };
        // Of the replicas of a run, one in `ep` has the same experts.
        let (tree, dp) = if of_experts { (tree / ep, dp / ep) } else { (tree, dp) };
        let order = if 1 < tree && tree < dp { format!(", runs of {tree} neighbours first") } else { String::new() };
        let (data, see) = match setup.parallelism.degrees.cp {
            _ if !of_experts && axes.data != setup.parallelism.token_axes() => {
                (axes.data.to_string(), "see other tokens")
            }
            1 => (format!("dp{of}"), "see other sequences"),
            _ => (format!("dp+cp{of}"), "see other tokens"),
        };
        kinds.push((data, axes.data, format!("{weights}, {see}, sum gradients {sums}{order}")));
        let members = setup.parallelism.shard_group();
        if 1 < members && members < dp {
            kinds.push(("zero".into(), axes.shards, "have one copy between them of what ZeRO shards".into()));
        }
    }
    let stages = "hold other layers, pass activations forward and gradients back";
    kinds.push(("pp".into(), AxisSet::of(Axis::Pp), stages.into()));
    kinds
}

/// `{0 2}`
pub fn braces(members: &[Rank]) -> String {
    let numbers: Vec<String> = members.iter().map(|rank| rank.0.to_string()).collect();
    format!("{{{}}}", numbers.join(" "))
}

/// Where one rank is, with whom it works, and what it holds.
pub fn place(setup: &Setup, rank: Rank) -> String {
    let mesh = &setup.mesh;
    let mut text = format!("{rank} of {} is at {}\n", mesh.world_size(), mesh.coord(rank));
    text += &format!("  holds {}\n", units(&setup.program(stage_of(setup, rank)).view));
    for (name, axes, work) in kinds(setup) {
        let group = mesh.group(rank, axes);
        if group.size() > 1 {
            text += &format!("  {name} group {}: {work}\n", braces(group.members()));
        }
    }
    text
}

/// The units of a pipeline rank, layers of each stage as a range.
pub fn units(view: &RankView) -> String {
    let mut parts: Vec<String> = vec![];
    let mut layers: Option<(u32, u32)> = None;
    for unit in view.computing_units() {
        match (unit, layers) {
            (Unit::Layer(number), Some((first, last))) if last + 1 == number => layers = Some((first, number)),
            (Unit::Layer(number), before) => {
                parts.extend(before.map(range));
                layers = Some((number, number));
            }
            (Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_), before) => {
                parts.extend(before.map(range));
                layers = None;
                parts.push(unit.to_string());
            }
        }
    }
    parts.extend(layers.map(range));
    parts.join(", ")
}

fn range((first, last): (u32, u32)) -> String {
    if first == last { format!("layer {first}") } else { format!("layers {first} to {last}") }
}

/// Index of `rank` along the pipeline.
pub fn stage_of(setup: &Setup, rank: Rank) -> usize {
    setup.mesh.coord(rank).along(Axis::Pp)
}
