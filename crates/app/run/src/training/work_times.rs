//! Times of ranks on their way from other processes to process 0, which compares them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mesh::Rank;
use serde::{Deserialize, Serialize};
use sync::lock;
use train::{CallTimes, Work, WorkTimes};

use crate::process_group::member::GroupMember;

/// Topic of the times.
pub const TOPIC: &str = "times of ranks";
/// Steps whose times are sent together.
const STEPS_A_MESSAGE: usize = 4;

/// [`WorkTimes`] as they are sent.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    rank: usize,
    step: u32,
    own_ns: [u64; Work::ALL.len()],
    /// Group, number of calls, and the first of them.
    calls: Vec<(usize, u64, Vec<u64>)>,
    received_ns: BTreeMap<usize, u64>,
}

impl From<WorkTimes> for Sent {
    fn from(times: WorkTimes) -> Sent {
        let WorkTimes { rank, step, own_ns, calls, received_ns } = times;
        let calls = calls.into_iter().map(|(group, calls)| (group, calls.count, calls.first_ns)).collect();
        Sent { rank: rank.0, step, own_ns, calls, received_ns }
    }
}

impl From<Sent> for WorkTimes {
    fn from(sent: Sent) -> WorkTimes {
        let Sent { rank, step, own_ns, calls, received_ns } = sent;
        let calls = calls.into_iter().map(|(group, count, first_ns)| (group, CallTimes { count, first_ns })).collect();
        WorkTimes { rank: Rank(rank), step, own_ns, calls, received_ns }
    }
}

/// The sending end, in a process other than 0.
pub struct TimesSender<'a> {
    member: &'a GroupMember,
    /// Ranks of this process.
    ranks: usize,
    unsent: Mutex<Vec<Sent>>,
}

impl<'a> TimesSender<'a> {
    /// For a process with this number of ranks.
    pub fn new(member: &'a GroupMember, ranks: usize) -> TimesSender<'a> {
        TimesSender { member, ranks, unsent: Mutex::default() }
    }

    /// Takes the times of a rank in a step, and sends those of a few steps together.
    pub fn take(&self, times: WorkTimes) {
        let mut unsent = lock(&self.unsent);
        unsent.push(times.into());
        if unsent.len() >= STEPS_A_MESSAGE * self.ranks
            && let Ok(message) = serde_json::to_vec(&std::mem::take(&mut *unsent))
        {
            // A run that has failed does not need them.
            let _ = self.member.send(TOPIC, message);
        }
    }
}

/// The times in a message; none in one that is malformed.
pub fn received(message: &[u8]) -> Vec<WorkTimes> {
    let sent: Vec<Sent> = serde_json::from_slice(message).unwrap_or_default();
    sent.into_iter().map(WorkTimes::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_from_their_message() {
        let times = WorkTimes {
            rank: Rank(70_000),
            step: 1 << 20,
            own_ns: [1, 2, u64::MAX, 4],
            calls: BTreeMap::from([(2, CallTimes { count: 40, first_ns: vec![5, 6] })]),
            received_ns: BTreeMap::from([(3, 7)]),
        };
        let message = serde_json::to_vec(&[Sent::from(times.clone())]).expect("JSON");
        assert_eq!(received(&message), [times]);
        assert_eq!(received(&message[..30]), []);
    }
}
