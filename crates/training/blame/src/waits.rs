//! Who waits for whom: from a rank that is late to the rank that it waits for itself.

use std::collections::BTreeMap;

use crate::history::{Entry, RankHistory};

/// The rank at the end of the chain of waits that begins with `late`: a rank in an instruction that needs no other one,
/// or whose peers are all in the same one. Of ranks that wait for one another, the one that is the furthest back.
pub fn origin(late: usize, histories: &BTreeMap<usize, RankHistory>) -> usize {
    let mut path = vec![];
    let mut rank = late;
    loop {
        if let Some(start) = path.iter().position(|seen| *seen == rank) {
            return path[start..].iter().copied().min_by_key(|rank| progress(*rank, histories)).unwrap_or(rank);
        }
        path.push(rank);
        let Some(next) = histories.get(&rank).and_then(|own| waits_for(own, histories)) else { return rank };
        rank = next;
    }
}

/// How far a rank has come: its step, and when its last instruction began.
fn progress(rank: usize, histories: &BTreeMap<usize, RankHistory>) -> Option<(u32, u64)> {
    histories.get(&rank).and_then(RankHistory::last).map(|last| (last.step, last.began_ns))
}

/// The peer that keeps a rank waiting: of those in another instruction, the one that is the furthest back.
fn waits_for(own: &RankHistory, histories: &BTreeMap<usize, RankHistory>) -> Option<usize> {
    let entry = own.last().filter(|entry| entry.is_running())?;
    let elsewhere = |peer: &&usize| {
        let last = histories.get(*peer).and_then(RankHistory::last);
        last.is_some_and(|last| !is_same(last, entry))
    };
    entry.peers.iter().filter(elsewhere).min_by_key(|peer| progress(**peer, histories)).copied()
}

fn is_same(one: &Entry, other: &Entry) -> bool {
    one.is_running() && one.step == other.step && one.instruction == other.instruction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingHeader;

    fn history(rank: usize, instruction: &str, peers: &[usize], began_ns: u64) -> (usize, RankHistory) {
        let header = RingHeader { rank, ..RingHeader::default() };
        let entry = Entry {
            number: 1,
            step: 3,
            instruction: instruction.into(),
            peers: peers.to_vec(),
            began_ns,
            ended_ns: None,
        };
        (rank, RankHistory { header, entries: vec![entry] })
    }

    #[test]
    fn a_chain_of_waits_ends_at_the_rank_that_computes() {
        let all = BTreeMap::from([
            history(0, "gradient norm", &[1, 2, 3], 40),
            history(1, "receive output of layer 1", &[2], 30),
            history(2, "receive output of embedding", &[3], 20),
            history(3, "forward embedding", &[], 10),
        ]);
        assert_eq!([0, 1, 2, 3].map(|rank| origin(rank, &all)), [3, 3, 3, 3]);
    }

    #[test]
    fn ranks_in_one_instruction_and_rings_of_waits_end_the_chain() {
        let same = BTreeMap::from([history(0, "gradient norm", &[1], 5), history(1, "gradient norm", &[0], 9)]);
        assert_eq!([origin(0, &same), origin(1, &same), origin(7, &same)], [0, 1, 7]);
        let ring = BTreeMap::from([history(0, "receive a", &[1], 5), history(1, "receive b", &[0], 9)]);
        assert_eq!([origin(0, &ring), origin(1, &ring)], [0, 0], "the one that is the furthest back");
    }
}
