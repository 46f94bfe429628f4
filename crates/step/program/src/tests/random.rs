//! Random legal schedules, and random damage to programs.

use crate::{Cell, CellKind, GradientAxes, Instr, Program, Schedule};
use config::{Microbatch, Unit};
use mesh::{Axis, AxisSet};

use crate::tests::reference::hash;

/// A small generator, so that a seed names a case.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = hash(&[self.0]);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicrobatchOrder {
    Ascending,
    Any,
}

/// The finished part of a schedule that is being made.
struct Making {
    stage_map: Vec<usize>,
    num_microbatches: usize,
    order: MicrobatchOrder,
    /// Per stage and microbatch: kinds that are done, a full backward counting as both parts.
    done: Vec<Vec<Vec<CellKind>>>,
    /// Per sending and receiving rank and kind: what is under way.
    channels: Vec<(usize, usize, CellKind, usize, usize)>,
}

impl Making {
    fn has(&self, stage: usize, microbatch: usize, kind: CellKind) -> bool {
        self.done[stage][microbatch].contains(&kind)
    }

    /// Whether the value from `stage` is here, and the first of its channel.
    fn arrived(&self, from: usize, to: usize, kind: CellKind, microbatch: usize) -> bool {
        let (sender, receiver) = (self.stage_map[from], self.stage_map[to]);
        if sender == receiver {
            return self.has(from, microbatch, kind);
        }
        let mut channel = self.channels.iter().filter(|(a, b, k, _, _)| (*a, *b, *k) == (sender, receiver, kind));
        channel.next().is_some_and(|(_, _, _, stage, mb)| (*stage, *mb) == (from, microbatch))
    }

    fn ready(&self, cell: Cell) -> bool {
        let (stage, mb) = (cell.stage.0 as usize, cell.microbatch.0 as usize);
        let last = self.stage_map.len() - 1;
        let done = |kind| self.has(stage, mb, kind);
        let in_turn = |kind| self.order == MicrobatchOrder::Any || mb == 0 || self.has(stage, mb - 1, kind);
        match cell.kind {
            CellKind::F => {
                !done(CellKind::F)
                    && in_turn(CellKind::F)
                    && (stage == 0 || self.arrived(stage - 1, stage, CellKind::F, mb))
            }
            CellKind::B | CellKind::I => {
                done(CellKind::F)
                    && !done(CellKind::I)
                    && in_turn(CellKind::I)
                    && (cell.kind == CellKind::I || in_turn(CellKind::W))
                    && (stage == last || self.arrived(stage + 1, stage, CellKind::I, mb))
            }
            CellKind::W => done(CellKind::I) && !done(CellKind::W) && in_turn(CellKind::W),
        }
    }

    fn execute(&mut self, cell: Cell) {
        let (stage, mb) = (cell.stage.0 as usize, cell.microbatch.0 as usize);
        let (kinds, sent, to, from): (&[CellKind], _, _, _) = match cell.kind {
            CellKind::F => (&[CellKind::F], CellKind::F, Some(stage + 1), stage.checked_sub(1)),
            CellKind::B => (&[CellKind::I, CellKind::W], CellKind::I, stage.checked_sub(1), Some(stage + 1)),
            CellKind::I => (&[CellKind::I], CellKind::I, stage.checked_sub(1), Some(stage + 1)),
            CellKind::W => (&[CellKind::W], CellKind::W, None, None),
        };
        self.done[stage][mb].extend(kinds);
        let rank_of = |stage: Option<usize>| stage.and_then(|stage| self.stage_map.get(stage)).copied();
        let here = self.stage_map[stage];
        let (to, from_rank) = (rank_of(to), rank_of(from));
        if let (Some(sender), Some(from)) = (from_rank, from)
            && sender != here
        {
            let entry = (sender, here, sent, from, mb);
            let at = self.channels.iter().position(|other| *other == entry).unwrap();
            self.channels.remove(at);
        }
        if let Some(receiver) = to
            && receiver != here
        {
            self.channels.push((here, receiver, sent, stage, mb));
        }
    }
}

/// A schedule that can be run, made by running it at random: any stage map, whole and split backwards mixed.
pub fn schedule(seed: u64, pp: usize, num_stages: usize, num_microbatches: usize, order: MicrobatchOrder) -> Schedule {
    let mut random = Random(seed);
    // Every rank has a stage.
    let mut stage_map: Vec<usize> = (0..num_stages).map(|s| if s < pp { s } else { random.below(pp) }).collect();
    for stage in (1..num_stages).rev() {
        stage_map.swap(stage, random.below(stage + 1));
    }
    let done = vec![vec![vec![]; num_microbatches]; num_stages];
    let mut making = Making { stage_map: stage_map.clone(), num_microbatches, order, done, channels: vec![] };
    let mut ranks = vec![vec![]; pp];
    loop {
        let kinds = [CellKind::F, CellKind::B, CellKind::I, CellKind::W];
        let cells = (0..num_stages).flat_map(|stage| {
            (0..making.num_microbatches).flat_map(move |mb| kinds.map(|kind| Cell::new(stage, kind, mb)))
        });
        let ready: Vec<Cell> = cells.filter(|cell| making.ready(*cell)).collect();
        if ready.is_empty() {
            break;
        }
        let cell = ready[random.below(ready.len())];
        making.execute(cell);
        ranks[stage_map[cell.stage.0 as usize]].push(cell);
    }
    assert!(making.done.iter().flatten().all(|kinds| kinds.len() == 3), "the schedule is complete");
    Schedule { ranks, stage_map }
}

/// Damages a program in one place and says how.
pub fn damage(programs: &mut [Program], random: &mut Random) -> String {
    let rank = random.below(programs.len());
    let num_layers = programs[rank].view.num_layers();
    let num_microbatches = programs[rank].view.num_microbatches;
    let instrs = &mut programs[rank].instrs;
    let at = random.below(instrs.len());
    let other = random.below(instrs.len());
    let last = instrs.len() - 1;
    let what = match random.below(6) {
        0 => {
            instrs.remove(at);
            "drops"
        }
        1 => {
            instrs.insert(other, instrs[at]);
            "duplicates"
        }
        2 => {
            instrs.swap(at, other);
            "swaps"
        }
        3 => {
            instrs.swap(at, (at + 1).min(last));
            "swaps with the next"
        }
        4 => {
            let near = (at + 1 + random.below(4)).min(last);
            let instr = instrs.remove(at);
            instrs.insert(near, instr);
            "delays"
        }
        _ => {
            let unit = match random.below(num_layers + 3) {
                0 => Unit::Table,
                1 => Unit::Embedding,
                2 => Unit::Head,
                layer => Unit::Layer(layer as u32 - 3),
            };
            let microbatch = Microbatch(random.below(num_microbatches + 1) as u32);
            instrs[at] = replacement(instrs[at], unit, microbatch, random);
            "changes"
        }
    };
    format!("{what} instruction {at} (and {other}) of rank {rank}")
}

fn replacement(instr: Instr, unit: Unit, microbatch: Microbatch, random: &mut Random) -> Instr {
    match random.below(13) {
        0 => Instr::Load { microbatch },
        1 => Instr::Forward { unit, microbatch },
        2 => Instr::BackwardInput { unit, microbatch },
        3 => Instr::BackwardWeight { unit, microbatch },
        4 => Instr::ReduceGrads { unit, by: unit, axes: axes(random) },
        5 => Instr::SumTied,
        6 => Instr::OptimizerStep { unit },
        7 => Instr::SendAct { unit, microbatch },
        8 => Instr::RecvGrad { unit, microbatch },
        9 => Instr::GatherParams { unit },
        10 => Instr::Recompute { unit, microbatch },
        11 => Instr::FreeParams { unit },
        _ => instr,
    }
}

/// For up to 19 parameters, each over data parallelism, or over tensor parallelism as well.
fn axes(random: &mut Random) -> GradientAxes {
    let some = [AxisSet::DATA, AxisSet::DATA.with(Axis::Tp)];
    GradientAxes::new((0..random.below(20)).map(|_| some[random.below(2)]))
}
