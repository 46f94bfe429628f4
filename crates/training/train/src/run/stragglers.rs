//! Ranks and groups that are slower than their peers.
//!
//! Ranks of one pipeline stage have the same program, so their own work takes the same time on equal machines. A rank
//! without peers is compared with the time that its program is predicted to take, in proportion to the other stages. A
//! collective ends for the member that comes last after the transfer alone, so the least time of its members is that of
//! their links. The time that a rank waits for another of its pipeline is compared with the waits of its peers.
//!
//! Whatever else a machine does only adds to a time. A rank is slow where both the least and the median of its last
//! steps are more than [`LIMIT`] times those of its peers, and its least is more than their median.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use mesh::{Axis, AxisSet, Mesh, Rank};
use program::{Durations, PeerGroup, PeerGroups};

use crate::run::work_times::{Work, WorkTimes};
use crate::setup::{Setup, WorkloadIndex};

/// Steps that are compared.
const STEPS: usize = 14;
/// Steps that are kept: times of other processes come later than those of this one.
const KEPT: usize = 20;
/// Ratio to peers from which a rank or a link is slow.
const LIMIT: f64 = 1.2;
/// The same for a rank without peers: predictions count multiplications and bytes, and leave out the time that each
/// small operation takes by itself.
const LIMIT_OF_PREDICTION: f64 = 3.0;
/// Share of a step that a slow rank must cost.
const SHARE: f64 = 0.01;
/// Steps after which a rank that stays slow is named again.
const AGAIN: u32 = 200;

/// A rank or a link that is slow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    Rank(Rank),
    /// The links between the ranks of a group.
    Group(PeerGroup, Vec<Rank>),
    /// The link from one stage of a pipeline to another.
    Link {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
    },
}

/// The times that others have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The times of its peers; the work in which it differs most, if it is a rank.
    Peers(Option<Work>),
    /// Those that are predicted.
    Prediction,
}

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// Who is slow.
    pub suspect: Suspect,
    /// Seconds of a step.
    pub seconds: f64,
    /// Seconds that are usual.
    pub typical: f64,
    /// Where these are from.
    pub basis: Basis,
}

impl Straggler {
    /// Seconds that a step takes longer, at most.
    pub fn cost(&self) -> f64 {
        self.seconds - self.typical
    }
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Straggler { suspect, seconds, typical, basis } = self;
        match (suspect, basis) {
            (Suspect::Rank(rank), Basis::Peers(work)) => {
                let most = work.map_or(String::new(), |work| format!(", most of it in {}", work.name()));
                write!(f, "{rank} is slow: it works {seconds:.3} s of a step, and its peers {typical:.3} s{most}")?;
            }
            (Suspect::Rank(rank), Basis::Prediction) => write!(
                f,
                "{rank} is slow: it computes {seconds:.3} s of a step, and other stages would compute its part in {typical:.3} s"
            )?,
            (Suspect::Group(which, ranks), _) => {
                let ranks: Vec<String> = ranks.iter().map(|rank| rank.0.to_string()).collect();
                write!(
                    f,
                    "the links between ranks {} are slow: their {which} exchanges for {seconds:.3} s of a step, and its peers \
                     for {typical:.3} s",
                    ranks.join(", ")
                )?;
            }
            (Suspect::Link { from, to }, _) => write!(
                f,
                "the link from {from} to {to} is slow: {to} waits for it {seconds:.3} s of a step, and its peers {typical:.3} s \
                 for theirs"
            )?,
        }
        write!(f, "; that costs up to {:.3} s a step", self.cost())
    }
}

/// The least and the median time over the last steps.
#[derive(Clone, Copy, Debug)]
struct TypicalTime {
    least: f64,
    median: f64,
}

impl TypicalTime {
    /// Of the newest [`STEPS`] of `seconds`.
    fn of(seconds: &[f64]) -> Option<TypicalTime> {
        let mut newest = seconds.get(seconds.len().checked_sub(STEPS)?..)?.to_vec();
        newest.sort_by(f64::total_cmp);
        Some(TypicalTime { least: newest[0], median: lower_median(&newest)? })
    }

    fn scaled(self, by: f64) -> TypicalTime {
        TypicalTime { least: self.least * by, median: self.median * by }
    }

    /// The usual one among `peers`.
    fn among(peers: &[TypicalTime]) -> Option<TypicalTime> {
        let median = |of: fn(&TypicalTime) -> f64| {
            let mut all: Vec<f64> = peers.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            lower_median(&all)
        };
        Some(TypicalTime { least: median(|typical| typical.least)?, median: median(|typical| typical.median)? })
    }

    fn exceeds(self, typical: TypicalTime, limit: f64) -> bool {
        let is_longer = self.least > limit * typical.least && self.median > limit * typical.median;
        // Where other programs use the cores, times vary from step to step more than they differ from rank to rank.
        is_longer && self.least > typical.median
    }
}

fn lower_median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Compares the times of all ranks.
#[derive(Debug)]
pub struct StragglerWatch {
    mesh: Mesh,
    groups: PeerGroups,
    /// Predicted work of each stage, in units of its own.
    predicted: Vec<f64>,
    /// Threads that take turns on each core.
    turns: f64,
    ranks: BTreeMap<Rank, VecDeque<WorkTimes>>,
    named: BTreeMap<Suspect, u32>,
}

impl StragglerWatch {
    /// For the ranks of `setup`, of which `turns` compute on each core in turns; 1 where each has its own.
    pub fn new(setup: &Setup, turns: f64) -> StragglerWatch {
        let stage = |stage: usize| {
            let program = setup.program_of(WorkloadIndex::MAIN, stage);
            program.instrs.iter().map(|instr| setup.times.of(&program.view, *instr)).sum::<u64>() as f64
        };
        let predicted = (0..setup.mesh.size(Axis::Pp)).map(stage).collect();
        StragglerWatch::of_groups(setup.groups(), predicted, turns)
    }

    fn of_groups(groups: PeerGroups, predicted: Vec<f64>, turns: f64) -> StragglerWatch {
        let mesh = *groups.mesh();
        StragglerWatch {
            mesh,
            groups,
            predicted,
            turns: turns.max(1.0),
            ranks: BTreeMap::new(),
            named: BTreeMap::new(),
        }
    }

    /// Takes the times of a step of a rank.
    pub fn take(&mut self, times: WorkTimes) {
        let own = self.ranks.entry(times.rank).or_default();
        if own.len() == KEPT {
            own.pop_front();
        }
        own.push_back(times);
    }

    /// Who is slow after `step`, which took `wall` seconds, and was not named lately. Ranks are named first: where one
    /// is slow, others wait for it, and waits say nothing about links. Neither do they where ranks take turns on cores.
    pub fn slow(&mut self, step: u32, wall: f64) -> Vec<Straggler> {
        let floor = SHARE * wall;
        let mut found: Vec<Straggler> = self.ranks.keys().filter_map(|rank| self.slow_rank(*rank, floor)).collect();
        if found.is_empty() && self.turns <= 1.0 {
            found = self.slow_groups(floor);
            found.extend(self.slow_links(floor));
        }
        found.retain(|straggler| {
            self.named.get(&straggler.suspect).is_none_or(|named| step >= named.saturating_add(AGAIN))
        });
        self.named.extend(found.iter().map(|straggler| (straggler.suspect.clone(), step)));
        found
    }

    /// A time of the last steps of `rank`.
    fn typical(&self, rank: Rank, seconds: impl Fn(&WorkTimes) -> f64) -> Option<TypicalTime> {
        TypicalTime::of(&self.ranks.get(&rank)?.iter().map(seconds).collect::<Vec<f64>>())
    }

    /// Ranks with the program and the share of tokens of `rank`, without it.
    fn peers(&self, rank: Rank) -> impl Iterator<Item = Rank> {
        let work = AxisSet::DATA.with(Axis::Ep).with(Axis::Tp).complement();
        let of = move |rank: Rank| self.mesh.coord(rank).position(work);
        let is_peer = move |other: &Rank| *other != rank && of(*other) == of(rank);
        self.mesh.ranks().filter(is_peer)
    }

    fn slow_rank(&self, rank: Rank, floor: f64) -> Option<Straggler> {
        let all = |times: &WorkTimes| times.own_ns.iter().sum::<u64>() as f64 * 1e-9;
        let own = self.typical(rank, all)?;
        // Times of peers may come later than those of the rank.
        let peers = self.peers(rank).map(|peer| self.typical(peer, all)).collect::<Option<Vec<TypicalTime>>>()?;
        let Some(typical) = TypicalTime::among(&peers) else { return self.slower_than_predicted(rank, floor) };
        let found = Straggler {
            suspect: Suspect::Rank(rank),
            seconds: own.median,
            typical: typical.median,
            basis: Basis::Peers(self.most_work(rank)),
        };
        (own.exceeds(typical, LIMIT * self.turns) && found.cost() > floor).then_some(found)
    }

    /// The work that `rank` takes longest for, in comparison with its peers.
    fn most_work(&self, rank: Rank) -> Option<Work> {
        let excess = |work: Work| {
            let of = |times: &WorkTimes| times.own_ns[work as usize] as f64 * 1e-9;
            let peers: Vec<TypicalTime> = self.peers(rank).filter_map(|peer| self.typical(peer, of)).collect();
            Some(self.typical(rank, of)?.median - TypicalTime::among(&peers)?.median)
        };
        let all = Work::ALL.into_iter().filter_map(|work| Some((work, excess(work)?)));
        all.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(work, _)| work)
    }

    /// `rank`, the only one of its stage, where it takes longer for what it is predicted to compute than other stages
    /// for theirs.
    fn slower_than_predicted(&self, rank: Rank, floor: f64) -> Option<Straggler> {
        let computed =
            |times: &WorkTimes| (times.own_ns[Work::Forward as usize] + times.own_ns[Work::Backward as usize]) as f64;
        let predicted = |rank: Rank| {
            let predicted = self.predicted.get(self.mesh.coord(rank).along(Axis::Pp)).copied();
            predicted.filter(|predicted| *predicted > 0.0)
        };
        let relative = |rank: Rank| Some(self.typical(rank, computed)?.scaled(1e-9 / predicted(rank)?));
        let own = relative(rank)?;
        let others =
            self.mesh.ranks().filter(|other| *other != rank).map(relative).collect::<Option<Vec<TypicalTime>>>()?;
        let typical = TypicalTime::among(&others)?;
        let found = Straggler {
            suspect: Suspect::Rank(rank),
            seconds: own.median * predicted(rank)?,
            typical: typical.median * predicted(rank)?,
            basis: Basis::Prediction,
        };
        (own.exceeds(typical, LIMIT_OF_PREDICTION * self.turns) && found.cost() > floor).then_some(found)
    }

    fn slow_groups(&self, floor: f64) -> Vec<Straggler> {
        let mut found = vec![];
        for (index, which) in self.groups.iter().enumerate() {
            let PeerGroup::Along(axes) = which else { continue };
            if which == PeerGroup::PIPELINE {
                continue;
            }
            let groups = self.mesh.groups(axes).into_iter().filter(|ranks| ranks.len() > 1);
            let timed: Vec<(Vec<Rank>, TypicalTime)> =
                groups.filter_map(|ranks| self.exchange(index, &ranks).map(|typical| (ranks, typical))).collect();
            for (ranks, own) in &timed {
                let stage = |ranks: &[Rank]| ranks.first().map(|rank| self.mesh.coord(*rank).along(Axis::Pp));
                let peers = timed.iter().filter(|(other, _)| other != ranks && stage(other) == stage(ranks));
                let Some(typical) = TypicalTime::among(&peers.map(|(_, typical)| *typical).collect::<Vec<_>>()) else {
                    continue;
                };
                let suspect = Suspect::Group(which, ranks.clone());
                let (seconds, basis) = (own.median, Basis::Peers(None));
                let straggler = Straggler { suspect, seconds, typical: typical.median, basis };
                if own.exceeds(typical, LIMIT) && straggler.cost() > floor {
                    found.push(straggler);
                }
            }
        }
        found
    }

    /// Seconds in which a group exchanges, by the member of each collective that waited least.
    fn exchange(&self, index: usize, ranks: &[Rank]) -> Option<TypicalTime> {
        let histories: Vec<&VecDeque<WorkTimes>> =
            ranks.iter().map(|rank| self.ranks.get(rank)).collect::<Option<_>>()?;
        let of_step = |step: u32| {
            let members =
                histories.iter().map(|history| history.iter().find(|times| times.step == step)?.calls.get(&index));
            let members = members.collect::<Option<Vec<_>>>()?;
            let kept = members.iter().map(|calls| calls.first_ns.len()).min().filter(|kept| *kept > 0)?;
            let least = |call: usize| members.iter().map(|calls| calls.first_ns[call]).min().unwrap_or(0);
            let of_all = members[0].count as f64 / kept as f64;
            Some((0..kept).map(least).sum::<u64>() as f64 * 1e-9 * of_all)
        };
        let steps = histories.first()?.iter().map(|times| times.step);
        TypicalTime::of(&steps.filter_map(of_step).collect::<Vec<f64>>())
    }

    /// Of each pipeline the first link that is slow, in either direction: the stages after it wait as long.
    fn slow_links(&self, floor: f64) -> Vec<Straggler> {
        let mut found = vec![];
        let stages = self.mesh.size(Axis::Pp);
        for pipeline in self.mesh.groups(AxisSet::of(Axis::Pp)) {
            let onward = (1..stages).map(|stage| (stage - 1, stage));
            let back = (1..stages).rev().map(|stage| (stage, stage - 1));
            let slow = |(from, to): (usize, usize)| self.slow_link(from, pipeline[from], pipeline[to], floor);
            found.extend(onward.filter_map(slow).next());
            found.extend(back.filter_map(slow).next());
        }
        let mut pairs = BTreeSet::new();
        found.retain(|straggler| match straggler.suspect {
            Suspect::Link { from, to } => pairs.insert((from.min(to), from.max(to))),
            Suspect::Rank(_) | Suspect::Group(..) => true,
        });
        found
    }

    fn slow_link(&self, stage: usize, from: Rank, to: Rank, floor: f64) -> Option<Straggler> {
        let waited = |times: &WorkTimes| times.received_ns.get(&stage).copied().unwrap_or(0) as f64 * 1e-9;
        let own = self.typical(to, waited)?;
        let peers = self.peers(to).map(|peer| self.typical(peer, waited)).collect::<Option<Vec<TypicalTime>>>()?;
        let typical = TypicalTime::among(&peers)?;
        let (suspect, seconds, basis) = (Suspect::Link { from, to }, own.median, Basis::Peers(None));
        let found = Straggler { suspect, seconds, typical: typical.median, basis };
        (own.exceeds(typical, LIMIT) && found.cost() > floor).then_some(found)
    }
}

#[cfg(test)]
mod tests;
