//! All ranks of a mesh, each with a program of its own: nobody stands in for a peer.
//!
//! Programs are compiled per pipeline coordinate and [`crate::link`] joins those, since peers along the other axes are equal by construction. Here that is not taken
//! for granted: every partner is the rank, or the group of ranks, that the mesh says, and the step runs to its end on the
//! weakest engine: one queue per rank, posted sends, blocking receives and collectives.

use std::collections::VecDeque;

use mesh::{Axis, AxisSet, Mesh, Rank};

use crate::link::transfer;
use crate::quick_hash::QuickMap;
use crate::{Instr, Partner, Program, Rule, Value, Violation, rules};

/// A mesh whose ranks have programs.
#[derive(Clone, Debug)]
pub struct World<'a> {
    mesh: &'a Mesh,
    /// Per replica of the pipeline its programs, by pipeline index.
    pipelines: Vec<Vec<Program>>,
}

/// What a step of all ranks comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldStep {
    /// Instructions that ranks executed.
    pub instructions: u64,
    /// Values that went from one rank to another.
    pub transfers: u64,
    /// Collectives, each of which all of its ranks called.
    pub collectives: u64,
}

/// So many of the ranks that wait for ever are named.
const NAMED: usize = 8;

/// All axes but that of the pipeline.
const REPLICAS: AxisSet = AxisSet::ALL.without(Axis::Pp);

impl<'a> World<'a> {
    /// The world in which each rank of `mesh` does what `program` says.
    pub fn new(mesh: &'a Mesh, program: impl Fn(Rank) -> Program) -> World<'a> {
        let pipelines = mesh.groups(Axis::Pp).into_iter().map(|ranks| ranks.into_iter().map(&program).collect());
        World { mesh, pipelines: pipelines.collect() }
    }

    /// Checks the rules of every rank's program, links them, and runs the step.
    ///
    /// # Errors
    /// All violations of the rules that need no graph; where there are none, the first thing that keeps ranks from the end, or that is left
    /// over there.
    pub fn verify(&self) -> Result<WorldStep, Vec<Violation>> {
        let of_pipeline = |(replica, programs): (usize, &Vec<Program>)| {
            let violations = rules::of_programs(programs).into_iter();
            violations
                .map(move |Violation { rule, message }| Violation::new(rule, format!("replica {replica}, {message}")))
        };
        let violations: Vec<Violation> = self.pipelines.iter().enumerate().flat_map(of_pipeline).collect();
        if !violations.is_empty() {
            return Err(violations);
        }
        let mut run = Run::new(self);
        run.finish().map_err(|violation| vec![violation])?;
        Ok(run.done)
    }

    fn program(&self, rank: Rank) -> &Program {
        let coord = self.mesh.coord(rank);
        &self.pipelines[coord.position(REPLICAS)][coord.along(Axis::Pp)]
    }
}

/// What goes one way between two ranks.
#[derive(Debug, Default)]
struct Channel {
    sent: VecDeque<Value>,
    /// The receiver, where it waits.
    waiting: Option<Rank>,
}

/// Ranks that call collectives together.
#[derive(Debug)]
struct Joined {
    members: Vec<Rank>,
    /// Those that have called the next one, which is the first one's.
    called: Vec<Rank>,
}

/// One way between two ranks, activations and gradients apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    from: Rank,
    to: Rank,
    is_activation: bool,
}

/// How far each rank is.
struct Run<'a> {
    world: &'a World<'a>,
    programs: Vec<&'a Program>,
    next: Vec<usize>,
    channels: QuickMap<Way, Channel>,
    groups: Vec<Joined>,
    /// The group that a rank means by a partner.
    group_of: QuickMap<(Rank, Partner), usize>,
    done: WorldStep,
}

/// What becomes of a rank's next instruction.
enum Turn {
    /// It is done; these ranks may go on because of it.
    Done(Vec<Rank>),
    /// It waits.
    Waits,
}

impl<'a> Run<'a> {
    fn new(world: &'a World<'a>) -> Run<'a> {
        let programs: Vec<&Program> = world.mesh.ranks().map(|rank| world.program(rank)).collect();
        let next = vec![0; programs.len()];
        let (channels, groups, group_of) = (QuickMap::default(), vec![], QuickMap::default());
        Run { world, programs, next, channels, groups, group_of, done: WorldStep::default() }
    }

    fn instr(&self, rank: Rank) -> Option<Instr> {
        self.programs[rank.0].instrs.get(self.next[rank.0]).copied()
    }

    fn finish(&mut self) -> Result<(), Violation> {
        let mut ready: Vec<Rank> = self.world.mesh.ranks().collect();
        while let Some(rank) = ready.pop() {
            while let Some(instr) = self.instr(rank) {
                match self.turn(rank, instr)? {
                    Turn::Done(others) => ready.extend(others),
                    Turn::Waits => break,
                }
            }
        }
        let stuck = self.world.mesh.ranks().filter(|rank| self.instr(*rank).is_some());
        let stuck: Vec<String> = stuck.take(NAMED).map(|rank| self.at(rank)).collect();
        if !stuck.is_empty() {
            return Err(Violation::new(Rule::Progress, format!("for ever {}", stuck.join(", and "))));
        }
        let left = self.channels.iter().find_map(|(way, channel)| Some((way, channel.sent.front()?)));
        match left {
            Some((Way { from, to, .. }, value)) => {
                Err(Violation::new(Rule::Pairs, format!("{from} sends {to} the {value}, which is never received")))
            }
            None => Ok(()),
        }
    }

    /// Where a rank is that has instructions left, in words.
    fn at(&self, rank: Rank) -> String {
        let instr = self.instr(rank).map_or(String::new(), |instr| format!(", `{instr}`"));
        format!("{rank} waits at instruction {}{instr}", self.next[rank.0])
    }

    fn turn(&mut self, rank: Rank, instr: Instr) -> Result<Turn, Violation> {
        let turn = match instr.partner(&self.programs[rank.0].view) {
            Partner::Nobody => Turn::Done(vec![]),
            Partner::To(to) => self.send(rank, self.along_pipeline(rank, to), instr),
            Partner::From(from) => self.receive(self.along_pipeline(rank, from), rank, instr)?,
            partner @ (Partner::Peers(_) | Partner::Ends { .. } | Partner::World) => {
                return self.join(rank, partner, instr);
            }
        };
        if let Turn::Done(_) = turn {
            self.step(rank);
        }
        Ok(turn)
    }

    fn step(&mut self, rank: Rank) {
        self.next[rank.0] += 1;
        self.done.instructions += 1;
    }

    fn along_pipeline(&self, rank: Rank, pp: usize) -> Rank {
        let mesh = self.world.mesh;
        mesh.rank(mesh.with(mesh.coord(rank), Axis::Pp, pp))
    }

    fn channel(&mut self, from: Rank, to: Rank, value: Value) -> &mut Channel {
        let is_activation = matches!(value, Value::Output { .. });
        self.channels.entry(Way { from, to, is_activation }).or_default()
    }

    fn send(&mut self, from: Rank, to: Rank, instr: Instr) -> Turn {
        let Some((value, _)) = transfer(instr) else { return Turn::Waits };
        let channel = self.channel(from, to, value);
        channel.sent.push_back(value);
        let woken = channel.waiting.take();
        self.done.transfers += 1;
        Turn::Done(woken.into_iter().collect())
    }

    fn receive(&mut self, from: Rank, to: Rank, instr: Instr) -> Result<Turn, Violation> {
        let Some((value, _)) = transfer(instr) else { return Ok(Turn::Waits) };
        let channel = self.channel(from, to, value);
        match channel.sent.pop_front() {
            None => {
                channel.waiting = Some(to);
                Ok(Turn::Waits)
            }
            Some(sent) if sent == value => Ok(Turn::Done(vec![])),
            Some(sent) => {
                let message = format!("{from} sends the {sent} where {to} receives the {value}");
                Err(Violation::new(Rule::Pairs, message))
            }
        }
    }

    fn join(&mut self, rank: Rank, partner: Partner, instr: Instr) -> Result<Turn, Violation> {
        let group = self.group(rank, partner);
        let Joined { members, called } = &self.groups[group];
        if !members.contains(&rank) {
            return Err(Violation::new(
                Rule::Collectives,
                format!("{rank} calls `{instr}` in a group that it is not in"),
            ));
        }
        if let Some(first) = called.first().copied() {
            let other = self.instr(first).unwrap_or(instr);
            if other != instr {
                let message = format!("{rank} calls `{instr}`, and {first}, of the same group, `{other}`");
                return Err(Violation::new(Rule::Collectives, message));
            }
        }
        let Joined { members, called } = &mut self.groups[group];
        called.push(rank);
        if called.len() < members.len() {
            return Ok(Turn::Waits);
        }
        let called = std::mem::take(called);
        self.done.collectives += 1;
        called.iter().for_each(|member| self.step(*member));
        Ok(Turn::Done(called.into_iter().filter(|member| *member != rank).collect()))
    }

    /// The group that `rank` means by `partner`: one for all of its members.
    fn group(&mut self, rank: Rank, partner: Partner) -> usize {
        if let Some(group) = self.group_of.get(&(rank, partner)) {
            return *group;
        }
        let members = match partner {
            Partner::Peers(axes) => self.world.mesh.group(rank, axes).members().to_vec(),
            Partner::Ends { embedding, head } => [embedding, head].map(|pp| self.along_pipeline(rank, pp)).to_vec(),
            Partner::World => self.world.mesh.ranks().collect(),
            Partner::Nobody | Partner::To(_) | Partner::From(_) => vec![rank],
        };
        let group = self.groups.len();
        for member in members.iter().chain([&rank]) {
            self.group_of.insert((*member, partner), group);
        }
        self.groups.push(Joined { members, called: vec![] });
        group
    }
}
