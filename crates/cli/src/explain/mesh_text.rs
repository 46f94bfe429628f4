//! The mesh and its groups in words.

use mesh::{Axis, AxisSet, Rank};
use program::Place;
use spec::{GradientReduction, Unit};
use train::Setup;

use super::stage_of;

/// The grid of ranks, and what each kind of group does.
pub fn mesh(setup: &Setup) -> String {
    let (mesh, parallelism) = (&setup.mesh, &setup.parallelism);
    let mut text = format!(
        "mesh of {} rank{}; tensor-parallel neighbours have consecutive numbers, stages are farthest apart\n",
        mesh.world_size(),
        if mesh.world_size() == 1 { "" } else { "s" }
    );
    for stage in 0..parallelism.pp {
        for replica in 0..parallelism.dp {
            let members = mesh.ranks().filter(|rank| {
                let coord = mesh.coord(*rank);
                coord.along(Axis::Pp) == stage && coord.position(AxisSet::DATA) == replica
            });
            let members: Vec<String> = members.map(|rank| format!("{:>3}", rank.0)).collect();
            text += &format!("  pp {stage}  dp {replica}  |{} |\n", members.join(" "));
        }
    }
    text += "groups\n";
    let kinds = kinds(setup);
    let width = kinds.iter().map(|(name, _, _)| name.len() + 1).max().unwrap_or_default();
    for (name, axes, work) in kinds {
        let groups = mesh.groups(axes);
        let shown: Vec<String> = groups.iter().take(4).map(|members| braces(members)).collect();
        let more = if groups.len() > 4 { format!(" and {} more", groups.len() - 4) } else { String::new() };
        text += &format!("  {name:<width$} {work}: {}{more}\n", shown.join(" "));
    }
    text
}

/// Name, axes and work of every kind of group; sharding groups only where there are several of several replicas.
fn kinds(setup: &Setup) -> Vec<(&'static str, AxisSet, String)> {
    let when = match setup.parallelism.zero.reduction() {
        GradientReduction::Step => "once a step",
        GradientReduction::Microbatch => "after each microbatch",
    };
    let replicas = "hold the same weights, see other sequences, sum gradients";
    let in_groups = setup.mesh.size(Axis::DpInner) > 1 && setup.mesh.size(Axis::DpOuter) > 1;
    let mut kinds = vec![
        ("tp", AxisSet::of(Axis::Tp), "share every matrix and sum activations inside each layer".to_string()),
        ("dp", AxisSet::DATA, format!("{replicas} {when}{}", if in_groups { ", in two sums" } else { "" })),
    ];
    if in_groups {
        let inner = "hold shards of one copy between them, sum first, each its shard";
        let outer = "hold the same shard, sum what these sums are";
        kinds.push(("shard", AxisSet::of(Axis::DpInner), inner.into()));
        kinds.push(("copy", AxisSet::of(Axis::DpOuter), outer.into()));
    }
    kinds.push(("pp", AxisSet::of(Axis::Pp), "hold other layers, hand activations forward and gradients back".into()));
    kinds
}

fn braces(members: &[Rank]) -> String {
    let numbers: Vec<String> = members.iter().map(|rank| rank.0.to_string()).collect();
    format!("{{{}}}", numbers.join(" "))
}

/// Where one rank is, with whom it works, and what it holds.
pub fn place(setup: &Setup, rank: Rank) -> String {
    let mesh = &setup.mesh;
    let mut text = format!("{rank} of {} is at {}\n", mesh.world_size(), mesh.coord(rank));
    text += &format!("  holds {}\n", units(&setup.program(stage_of(setup, rank)).place));
    for (name, axes, work) in kinds(setup) {
        let group = mesh.group(rank, axes);
        if group.size() > 1 {
            text += &format!("  {name} group {}: {work}\n", braces(group.members()));
        }
    }
    text
}

/// The units of a pipeline rank, layers of each stage as a range.
pub fn units(place: &Place) -> String {
    let mut parts: Vec<String> = vec![];
    let mut layers: Option<(u32, u32)> = None;
    for unit in place.computing_units() {
        match (unit, layers) {
            (Unit::Layer(number), Some((first, last))) if last + 1 == number => layers = Some((first, number)),
            (Unit::Layer(number), before) => {
                parts.extend(before.map(range));
                layers = Some((number, number));
            }
            (Unit::Table | Unit::Embedding | Unit::Head, before) => {
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

#[cfg(test)]
mod tests {
    use spec::RunConfig;

    use super::*;

    fn groups(overrides: &[&str]) -> String {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).expect("legal");
        let text = mesh(&Setup::new(model, parallelism, train).expect("planned"));
        text.split_once("groups\n").expect("groups").1.to_string()
    }

    #[test]
    fn groups_say_when_and_among_whom_gradients_are_summed() {
        let dp_only = ["parallelism.tp=1", "parallelism.pp=1", "parallelism.dp=4", "parallelism.zero=2"];
        assert!(
            groups(&dp_only)
                .contains("  dp  hold the same weights, see other sequences, sum gradients once a step: {0 1 2 3}\n")
        );
        let in_groups = [&dp_only[..], &["parallelism.shard_group=2", "parallelism.reduce=microbatch"]].concat();
        let said = groups(&in_groups);
        assert!(
            said.contains(
                "  dp     hold the same weights, see other sequences, sum gradients after each microbatch, in two sums: {0 1 2 3}\n  \
                 shard  hold shards of one copy between them, sum first, each its shard: {0 1} {2 3}\n  \
                 copy   hold the same shard, sum what these sums are: {0 2} {1 3}\n"
            ),
            "{said}"
        );
    }
}
