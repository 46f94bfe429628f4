//! `memory`: the plan fits, and gives values that are alive together disjoint places.

use std::collections::BTreeMap;

use crate::rank_plan::{PlannedLife, RankPlan};
use crate::sizes::aligned;
use crate::{Category, Extent, MemoryPlan, Rule, Value, Violation};

pub(crate) fn memory(plan: &MemoryPlan, capacity_bytes: Option<usize>) -> Vec<Violation> {
    let mut violations = vec![];
    for (rank, plan) in plan.ranks.iter().enumerate() {
        let arena_bytes = plan.arena_bytes();
        if let Some(capacity_bytes) = capacity_bytes.filter(|capacity| *capacity < arena_bytes) {
            let categories = plan.categories().into_iter().filter(|(_, bytes)| *bytes > 0);
            let categories: Vec<String> = categories.map(|(category, bytes)| format!("{category} {bytes}")).collect();
            violations.push(Violation::new(
                Rule::Memory,
                format!(
                    "pipeline rank {rank} needs {arena_bytes} bytes ({}), {capacity_bytes} are there; {}",
                    categories.join(", "),
                    remedy(plan)
                ),
            ));
        }
        violations
            .extend(overlap(plan).map(|what| Violation::new(Rule::Memory, format!("pipeline rank {rank}: {what}"))));
    }
    violations
}

fn remedy(plan: &RankPlan) -> &'static str {
    let state = |category| {
        matches!(
            category,
            Category::Parameters
                | Category::Gradients
                | Category::Optimizer
                | Category::Staged
                | Category::Gathered
                | Category::Unreduced
                | Category::Constants
        )
    };
    let state_bytes: usize =
        plan.categories().into_iter().filter(|(category, _)| state(*category)).map(|(_, bytes)| bytes).sum();
    match state_bytes * 2 > plan.arena_bytes() {
        true => "ZeRO, more tensor parallelism or more stages make the state smaller",
        false => "smaller microbatches, recomputation or 1F1B make the activations smaller",
    }
}

fn end(extent: Extent) -> usize {
    extent.offset_bytes + aligned(extent.len_bytes)
}

/// Two things alive together that share bytes: state and scratch always are, other values while they live. Those in
/// memory of the host are below the arena.
fn overlap(plan: &RankPlan) -> Option<String> {
    let fixed = plan.state().iter().map(|(value, extent)| (value.to_string(), *extent));
    let mut fixed: Vec<_> = fixed.chain([("scratch".to_string(), plan.scratch())]).collect();
    fixed.retain(|(_, extent)| extent.len_bytes > 0);
    fixed.sort_by_key(|(_, extent)| extent.offset_bytes);
    if let Some(pair) = fixed.windows(2).find(|pair| end(pair[0].1) > pair[1].1.offset_bytes) {
        return Some(format!("{} and {} share bytes", pair[0].0, pair[1].0));
    }
    let (on_host_state, arena_state) =
        fixed.split_at(fixed.partition_point(|(_, extent)| extent.offset_bytes < plan.host_bytes()));
    let floor = |section: &[(String, Extent)]| section.last().map_or(0, |(_, extent)| end(*extent));
    let (on_host, in_arena): (Vec<PlannedLife>, Vec<PlannedLife>) =
        plan.lives().iter().partition(|life| matches!(life.value, Value::OnHost { .. }));
    if let Some(high) = on_host.iter().find(|life| end(life.extent) > plan.host_bytes()) {
        return Some(format!("the {} reaches beyond memory of the host", high.value));
    }
    overlapping_lives(&on_host, floor(on_host_state)).or_else(|| overlapping_lives(&in_arena, floor(arena_state)))
}

/// A sweep over time that keeps what is alive in order of offsets: only neighbours can overlap.
fn overlapping_lives(lives: &[PlannedLife], floor_bytes: usize) -> Option<String> {
    let mut lives: Vec<&PlannedLife> = lives.iter().filter(|life| life.extent.len_bytes > 0).collect();
    if let Some(low) = lives.iter().find(|life| life.extent.offset_bytes < floor_bytes) {
        return Some(format!("the {} reaches into the state or the scratch stack", low.value));
    }
    lives.sort_by_key(|life| life.start);
    let mut alive: BTreeMap<usize, &PlannedLife> = BTreeMap::new();
    let mut deaths: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for life in lives {
        while let Some(first) = deaths.first_entry().filter(|first| *first.key() <= life.start) {
            for offset in first.remove() {
                alive.remove(&offset);
            }
        }
        let offset = life.extent.offset_bytes;
        let below = alive.range(..offset).next_back().map(|(_, below)| *below);
        let below = below.filter(|below| end(below.extent) > offset);
        let above = alive.range(offset..).next().map(|(_, above)| *above);
        let above = above.filter(|above| end(life.extent) > above.extent.offset_bytes);
        if let Some(other) = below.or(above) {
            return Some(format!("the {} and the {} share bytes while both are alive", life.value, other.value));
        }
        alive.insert(offset, life);
        deaths.entry(life.end).or_default().push(offset);
    }
    None
}

#[cfg(test)]
mod tests {
    use config::Microbatch;

    use super::*;
    use crate::Reached;

    fn life(microbatch: u32, start: usize, end: usize, offset_bytes: usize, len_bytes: usize) -> PlannedLife {
        let value = Value::Batch(Microbatch(microbatch));
        let extent = Extent { offset_bytes, len_bytes };
        PlannedLife { value, start, end, extent, category: Category::Batches, released: Reached::NOTHING }
    }

    #[test]
    fn values_share_bytes_only_one_after_the_other() {
        let floor = 512;
        let share = |lives: &[PlannedLife]| overlapping_lives(lives, floor);
        assert_eq!(share(&[life(0, 0, 4, 512, 256), life(1, 4, 6, 512, 256), life(2, 0, 6, 768, 10)]), None);
        let message = share(&[life(0, 0, 5, 512, 256), life(1, 4, 6, 512, 256)]).unwrap();
        assert_eq!(message, "the batch, microbatch 1 and the batch, microbatch 0 share bytes while both are alive");
        // The room is rounded up to 256 bytes; a long value may reach over one further up.
        assert!(share(&[life(0, 0, 9, 512, 1), life(1, 1, 9, 640, 1)]).is_some());
        assert!(share(&[life(0, 0, 9, 1280, 256), life(1, 1, 9, 512, 2560)]).is_some());
        assert!(share(&[life(0, 0, 1, 256, 256)]).unwrap().contains("reaches into the state"));
    }
}
