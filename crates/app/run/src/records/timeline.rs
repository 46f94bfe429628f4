//! A step in time, as the folder of a run keeps it and as a page draws it.

use mesh::{Axis, Mesh, Rank};
use report::{Block, StageTime, Timeline, TimelineSource};
use sim::{BlockKind, RankTrace, Trace};

/// One rank of each stage of a measured `trace` of `step`: the first one.
pub fn measured(trace: &Trace, mesh: &Mesh, step: u32) -> Timeline {
    let stage = |rank: &RankTrace| mesh.coord(Rank(rank.number)).along(Axis::Pp);
    let mut stages: Vec<(usize, StageTime)> = vec![];
    for rank in &trace.ranks {
        let pp = stage(rank);
        if stages.iter().all(|(own, _)| *own != pp) {
            stages.push((pp, stage_time(format!("pp {pp}"), rank, trace.end_ns())));
        }
    }
    stages.sort_by_key(|(pp, _)| *pp);
    let stages = stages.into_iter().map(|(_, stage)| stage).collect();
    Timeline { source: TimelineSource::Measured, step, end_us: microseconds(trace.end_ns()), stages }
}

/// The stages of a `trace` that nobody has measured.
pub fn planned(trace: &Trace) -> Timeline {
    let stages = trace.ranks.iter().map(|rank| stage_time(rank.name.clone(), rank, trace.end_ns())).collect();
    Timeline { source: TimelineSource::Planned, step: 0, end_us: microseconds(trace.end_ns()), stages }
}

fn stage_time(name: String, rank: &RankTrace, end_ns: u64) -> StageTime {
    let blocks = joined(rank.blocks(), end_ns / PAUSE);
    let spent = BlockKind::ALL.into_iter().map(|kind| {
        let ns = match kind {
            BlockKind::Communication => rank.communication().exposed_ns,
            BlockKind::Forward
            | BlockKind::Recompute
            | BlockKind::Backward
            | BlockKind::BackwardInput
            | BlockKind::BackwardWeight
            | BlockKind::Optimizer => {
                blocks.iter().filter(|block| block.kind == kind).map(|block| block.end_ns - block.start_ns).sum()
            }
        };
        (kind.name().to_string(), microseconds(ns))
    });
    let spent = spent.filter(|(_, time)| *time > 0.0).collect();
    let drawn = |block: &sim::Block| {
        let (start, end) = (microseconds(block.start_ns), microseconds(block.end_ns));
        Block(block.kind.name().into(), block.microbatch, start, end)
    };
    StageTime { name, blocks: blocks.iter().map(drawn).collect(), spent }
}

/// Between instructions of one pass a measured rank pauses for less than this part of the step.
const PAUSE: u64 = 500;

/// Passes without the pauses of at most `pause_ns` between their instructions. Communication runs at the same time.
fn joined(blocks: Vec<sim::Block>, pause_ns: u64) -> Vec<sim::Block> {
    let (communicating, computing): (Vec<sim::Block>, Vec<sim::Block>) =
        blocks.into_iter().partition(|block| block.kind == BlockKind::Communication);
    let mut joined: Vec<sim::Block> = vec![];
    for block in computing {
        let before = joined.last_mut().filter(|last| last.microbatch == block.microbatch);
        match before.filter(|last| block.start_ns <= last.end_ns + pause_ns) {
            Some(last) if last.kind == block.kind => last.end_ns = block.end_ns,
            Some(last) if is_backward(last.kind) && is_backward(block.kind) => {
                (last.kind, last.end_ns) = (BlockKind::Backward, block.end_ns);
            }
            Some(_) | None => joined.push(block),
        }
    }
    joined.extend(communicating);
    joined.sort_by_key(|block| block.start_ns);
    joined
}

fn is_backward(kind: BlockKind) -> bool {
    match kind {
        BlockKind::Backward | BlockKind::BackwardInput | BlockKind::BackwardWeight => true,
        BlockKind::Forward | BlockKind::Recompute | BlockKind::Communication | BlockKind::Optimizer => false,
    }
}

/// With one decimal.
fn microseconds(ns: u64) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_have_no_pauses_and_waits_stay() {
        let block =
            |kind, microbatch, start_ns, end_ns| sim::Block { kind, microbatch: Some(microbatch), start_ns, end_ns };
        let (forward, inputs, weights) = (BlockKind::Forward, BlockKind::BackwardInput, BlockKind::BackwardWeight);
        let send = block(BlockKind::Communication, 0, 101, 103);
        let blocks = vec![
            block(forward, 0, 0, 100),
            send,
            block(forward, 0, 102, 200),
            block(forward, 1, 201, 300),
            block(inputs, 0, 400, 500),
            block(weights, 0, 501, 600),
        ];
        let whole =
            [block(forward, 0, 0, 200), send, block(forward, 1, 201, 300), block(BlockKind::Backward, 0, 400, 600)];
        assert_eq!(joined(blocks, 5), whole);
    }
}
