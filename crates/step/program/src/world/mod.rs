//! All ranks of a world, each with a program, sizes and groups of its own: no rank stands in for a peer.
//!
//! Programs are compiled per pipeline coordinate and [`crate::link`] joins those, since peers along the other axes are
//! equal by construction. Here nothing is taken for granted: each rank brings what it compiled and resolved by itself.
//! Groups must agree among their members, and the step runs to its end on the weakest engine: one queue per rank,
//! posted sends, blocking receives and collectives.
//!
//! A rank's program is compared with those of the ranks before it and dropped where it is equal to one: memory grows
//! with different programs, not with ranks.

mod calls;
mod run;

use std::collections::BTreeMap;

use mesh::Rank;

use crate::peers::{PeerGroup, Peers};
use crate::quick_hash::QuickMap;
use crate::{Program, Rule, Sizes, Violation, rules};
use calls::Calls;
use run::Run;

/// The contribution of one rank.
#[derive(Clone, Debug)]
pub struct WorldRank {
    pub program: Program,
    /// The bytes of its values.
    pub sizes: Sizes,
    /// The ranks with which it communicates.
    pub peers: Peers,
}

/// Ranks that have been added one by one, from rank 0 on.
#[derive(Debug, Default)]
pub struct World {
    ranks: Vec<Member>,
    programs: Vec<Known>,
    /// The members of each group that some rank is in.
    groups: Vec<Vec<Rank>>,
    group_ids: QuickMap<(PeerGroup, Vec<Rank>), usize>,
}

/// One rank.
#[derive(Debug)]
struct Member {
    /// Index among the different programs.
    program: usize,
    sizes: Sizes,
    /// Of each of its groups, index among the different groups, and the rank's position there.
    groups: Vec<(PeerGroup, (usize, usize))>,
}

/// A program that at least one rank has.
#[derive(Debug)]
struct Known {
    program: Program,
    calls: Calls,
}

/// Totals of a step over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldStep {
    /// Instructions that ranks executed.
    pub instructions: u64,
    /// Values that went from one rank to another.
    pub transfers: u64,
    /// Collectives of two or more ranks, each of which all of its ranks called.
    pub collectives: u64,
    /// Programs that differ from each other.
    pub programs: u64,
}

impl World {
    /// Adds the next rank.
    pub fn add(&mut self, rank: WorldRank) {
        let WorldRank { program, sizes, peers } = rank;
        let groups = self.groups_of(&peers);
        let program = self.known(program);
        self.ranks.push(Member { program, sizes, groups });
    }

    fn known(&mut self, program: Program) -> usize {
        let is_same = |known: &Known| known.program == program;
        // Ranks of one stage are neighbours.
        self.programs.iter().rposition(is_same).unwrap_or_else(|| {
            let calls = Calls::of(&program);
            self.programs.push(Known { program, calls });
            self.programs.len() - 1
        })
    }

    fn groups_of(&mut self, peers: &Peers) -> Vec<(PeerGroup, (usize, usize))> {
        peers.each().map(|(which, group)| (which, (self.group_id(which, group.members()), group.position()))).collect()
    }

    fn group_id(&mut self, which: PeerGroup, members: &[Rank]) -> usize {
        let next = self.groups.len();
        let id = *self.group_ids.entry((which, members.to_vec())).or_insert(next);
        if id == next {
            self.groups.push(members.to_vec());
        }
        id
    }

    /// Index of one of the groups of `rank`, and the position there; `None` for a group that ranks do not have.
    fn membership(&self, rank: usize, which: PeerGroup) -> Option<(usize, usize)> {
        let own = self.ranks[rank].groups.iter().find(|(other, _)| *other == which);
        own.map(|(_, membership)| *membership)
    }

    /// Checks that groups agree, checks the rules of every rank's program, and runs the step.
    ///
    /// # Errors
    /// All violations of the groups; where there are none, all of the rules that need no graph; where there are none,
    /// the first thing that keeps ranks from the end, or that is left over there.
    pub fn verify(&self) -> Result<WorldStep, Vec<Violation>> {
        let found = |violations: Vec<Violation>| if violations.is_empty() { Ok(()) } else { Err(violations) };
        found(self.group_violations())?;
        found(self.rule_violations())?;
        Run::new(self).finish().map_err(|violation| vec![violation])
    }

    /// Ranks that were added.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Position of `rank` in one of its groups; 0 in a group that ranks do not have.
    ///
    /// # Panics
    /// A rank that was not added.
    pub fn position(&self, rank: usize, which: PeerGroup) -> usize {
        self.membership(rank, which).map_or(0, |(_, position)| position)
    }

    /// Members of one of the groups of `rank`; none of a group that ranks do not have.
    ///
    /// # Panics
    /// A rank that was not added.
    pub fn members(&self, rank: usize, which: PeerGroup) -> &[Rank] {
        self.membership(rank, which).map_or(&[], |(group, _)| &self.groups[group])
    }

    fn program(&self, rank: usize) -> &Known {
        &self.programs[self.ranks[rank].program]
    }

    /// Each rank is where it says in each of its groups, and all members of a group name the same members.
    fn group_violations(&self) -> Vec<Violation> {
        let mut violations = vec![];
        let mut found = |message| violations.push(Violation::new(Rule::Collectives, message));
        for (rank, member) in self.ranks.iter().enumerate() {
            for &(which, (group, position)) in &member.groups {
                let own = Rank(rank);
                let members = self.members(rank, which);
                if members.get(position) != Some(&own) {
                    found(format!("{own} must be at position {position} of its {which}; got {}", listed(members)));
                }
                let is_elsewhere = |other: &&Rank| {
                    other.0 >= self.ranks.len() || self.membership(other.0, which).map(|theirs| theirs.0) != Some(group)
                };
                let other = members.iter().find(is_elsewhere);
                if let Some(other) = other {
                    let theirs = match self.ranks.get(other.0) {
                        Some(_) => listed(self.members(other.0, which)),
                        None => "no rank of this world".into(),
                    };
                    let own_members = listed(members);
                    found(format!("the {which} of {own} is {own_members}; that of {other}, a member, is {theirs}"));
                }
            }
            let (view, position) = (&self.program(rank).program.view, self.position(rank, PeerGroup::PIPELINE));
            if view.pp != position {
                found(format!(
                    "rank {rank} is at position {position} of its pipeline and must run the program of pipeline rank \
                     {position}; got that of pipeline rank {}",
                    view.pp
                ));
            }
        }
        violations
    }

    /// Of each pipeline; pipelines of equal programs have equal violations, so that one of them is checked.
    fn rule_violations(&self) -> Vec<Violation> {
        let mut pipelines: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for rank in 0..self.ranks.len() {
            if self.position(rank, PeerGroup::PIPELINE) == 0 {
                let stages = self.members(rank, PeerGroup::PIPELINE).iter();
                pipelines.entry(stages.map(|stage| self.ranks[stage.0].program).collect()).or_insert(rank);
            }
        }
        let of_pipeline = |(programs, rank): (&Vec<usize>, &usize)| {
            let programs: Vec<Program> = programs.iter().map(|index| self.programs[*index].program.clone()).collect();
            let violations = rules::of_programs(&programs).into_iter();
            let named =
                |Violation { rule, message }| Violation::new(rule, format!("pipeline of rank {rank}, {message}"));
            violations.map(named).collect::<Vec<_>>()
        };
        pipelines.iter().flat_map(of_pipeline).collect()
    }
}

/// Ranks of a list that are named.
const NAMED: usize = 8;

/// `ranks 0, 2, 4`, and where they are many, how many more there are.
fn listed(ranks: &[Rank]) -> String {
    let numbers: Vec<String> = ranks.iter().take(NAMED).map(|rank| rank.0.to_string()).collect();
    let more = ranks.len().saturating_sub(NAMED);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("ranks {}{rest}", numbers.join(", "))
}
