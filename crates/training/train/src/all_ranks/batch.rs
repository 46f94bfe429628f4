//! Which sequences ranks read: those of a step, each by one model replica.

use super::{Microbatch, PeerGroup, Rule, Seen, SequenceOrder, Violation, World};

/// A microbatch of one replica: sequences from `start` to before `end`.
#[derive(Clone, Copy)]
struct Slice {
    start: u64,
    end: u64,
    rank: usize,
}

/// The groups whose ranks read the same sequences: the same tokens, or others.
const SAME_SEQUENCES: [PeerGroup; 3] = [PeerGroup::TENSOR, PeerGroup::CONTEXT, PeerGroup::PIPELINE];

/// Ranks of a model replica that read different sequences, and sequences of a step of `sequences` that several replicas
/// read, or none.
pub(super) fn violations(world: &World, seen: &[Seen], sequences: usize) -> Vec<Violation> {
    let mut found = vec![];
    let mut slices = vec![];
    for (rank, own) in seen.iter().enumerate() {
        for which in SAME_SEQUENCES {
            let first = world.members(rank, which)[0].0;
            if seen[first].sequences != own.sequences {
                let (own, other) = (listed(&own.sequences), listed(&seen[first].sequences));
                found.push(format!(
                    "rank {rank} must read the sequences of rank {first}, of its {which}: {other}; got {own}"
                ));
            }
        }
        let (slice, position) = (own.position.slice, world.position(rank, PeerGroup::CONTEXT));
        if slice != position {
            found.push(format!("rank {rank} must read the tokens of position {position} of a sequence; got {slice}"));
        }
        if SAME_SEQUENCES.iter().all(|which| world.position(rank, *which) == 0) {
            slices.extend(own_slices(rank, &own.sequences));
        }
    }
    slices.sort_by_key(|slice| (slice.start, slice.end));
    let mut next = Slice { start: 0, end: 0, rank: 0 };
    for slice in slices.iter().chain([&Slice { start: sequences as u64, end: sequences as u64, rank: 0 }]) {
        if slice.start > next.end {
            found.push(format!("sequences {} to {} of the step are read by no rank", next.end, slice.start - 1));
        }
        if slice.start < next.end {
            let last = slice.end.min(next.end).max(slice.start + 1) - 1;
            found.push(match slice.start == sequences as u64 {
                true => format!("rank {} reads sequences from {} on; the step has {sequences}", next.rank, slice.start),
                false => {
                    format!(
                        "sequences {} to {last} of the step are read by rank {} and by rank {}",
                        slice.start, next.rank, slice.rank
                    )
                }
            });
        }
        if slice.end >= next.end {
            next = *slice;
        }
    }
    found.into_iter().map(|message| Violation::new(Rule::Batch, message)).collect()
}

fn own_slices(rank: usize, order: &SequenceOrder) -> impl Iterator<Item = Slice> {
    (0..order.num_microbatches as u32).map(move |microbatch| {
        let start = order.first_sequence(Microbatch(microbatch));
        Slice { start, end: start + order.microbatch_size as u64, rank }
    })
}

fn listed(order: &SequenceOrder) -> String {
    let slices: Vec<Slice> = own_slices(0, order).collect();
    match (slices.first(), slices.last()) {
        (Some(first), Some(last)) => format!("{} to {} in {} microbatches", first.start, last.end - 1, slices.len()),
        (None, _) | (_, None) => "none".into(),
    }
}
