//! Collectives that span pipeline ranks. Those among ranks of one pipeline index match by construction, because these
//! run the same program.

use std::collections::BTreeMap;

use super::Event;
use crate::{Instr, Partner, Program, Rule, Violation};

/// The instructions that each rank issues to a group, in order.
type Issued = BTreeMap<usize, Vec<(Event, Instr)>>;

/// The members of each collective.
#[derive(Clone, Debug)]
pub(super) struct Collectives {
    members: Vec<Vec<Event>>,
    /// Per rank: its collectives in the order of its program, as instruction and index in `members`.
    of_rank: Vec<Vec<(usize, usize)>>,
}

impl Collectives {
    pub(super) fn members(&self, event: Event) -> Option<&[Event]> {
        let own = &self.of_rank[event.rank];
        let found = own.binary_search_by_key(&event.index, |(instr, _)| *instr).ok()?;
        Some(&self.members[own[found].1])
    }
}

/// Merges the n-th collective of each group over its members; each must be the same instruction everywhere.
pub(super) fn join(programs: &[Program]) -> (Collectives, Vec<Violation>) {
    // Groups are named by their pipeline ranks.
    let mut groups: BTreeMap<Vec<usize>, Issued> = BTreeMap::new();
    for (rank, program) in programs.iter().enumerate() {
        for (index, instr) in program.instrs.iter().enumerate() {
            let group = match instr.partner(&program.view) {
                Partner::Ends { embedding, head } => vec![embedding, head],
                Partner::World => (0..programs.len()).collect(),
                Partner::None | Partner::To(_) | Partner::From(_) | Partner::Peers(_) => continue,
            };
            let event = Event { rank, index };
            groups.entry(group).or_default().entry(rank).or_default().push((event, *instr));
        }
    }
    let mut joined = Collectives { members: vec![], of_rank: vec![vec![]; programs.len()] };
    let mut violations = vec![];
    for (group, issued) in &groups {
        match mismatch(group, issued) {
            Some(violation) => violations.push(violation),
            None => add(&mut joined, issued),
        }
    }
    joined.of_rank.iter_mut().for_each(|own| own.sort_unstable());
    (joined, violations)
}

fn add(joined: &mut Collectives, issued: &Issued) {
    let rounds = issued.values().map(Vec::len).max().unwrap_or(0);
    for round in 0..rounds {
        let members: Vec<Event> = issued.values().filter_map(|list| list.get(round)).map(|(event, _)| *event).collect();
        for event in &members {
            joined.of_rank[event.rank].push((event.index, joined.members.len()));
        }
        joined.members.push(members);
    }
}

fn mismatch(group: &[usize], issued: &Issued) -> Option<Violation> {
    let violation = |message| Some(Violation::new(Rule::Collectives, message));
    if let Some(outsider) = issued.keys().find(|rank| !group.contains(rank)) {
        return violation(format!(
            "pipeline rank {outsider} calls the group of pipeline ranks {group:?}, which it is not in"
        ));
    }
    let none = vec![];
    let of = |rank: usize| issued.get(&rank).unwrap_or(&none);
    let first = of(group[0]);
    group[1..].iter().find_map(|&rank| {
        let other = of(rank);
        let rounds = first.len().max(other.len());
        let different = (0..rounds).find(|&n| first.get(n).map(|(_, i)| i) != other.get(n).map(|(_, i)| i))?;
        let name = |list: &[(Event, Instr)]| match list.get(different) {
            Some((event, instr)) => format!("`{instr}` (instruction {})", event.index),
            None => "nothing".into(),
        };
        violation(format!(
            "collective {different} of pipeline ranks {group:?}: rank {} calls {}, rank {rank} calls {}",
            group[0],
            name(first),
            name(other)
        ))
    })
}
