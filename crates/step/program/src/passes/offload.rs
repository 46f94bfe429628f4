//! Activations in memory of the host between the passes that make and need them.

use std::collections::{BTreeMap, HashMap};

use config::{Microbatch, Unit};

use crate::{Half, Instr, RankView, Turn};

/// Turns from a forward turn to its backward turn at which activations stay in the arena: with one turn in between, a
/// fetch would be issued before the copy to the host has ended.
const NEAR: usize = 2;

/// Copies what a layer's forward pass leaves to memory of the host after it, and back one turn before its backward
/// pass, which that turn then hides. Where the backward pass follows soon, there are no copies.
///
/// At most three layers have activations in the arena, where backward passes are in one piece: the one that computes,
/// the one before it, which is copied, and the one after it, which is fetched.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    if view.computing_units().all(|unit| view.offloaded_activations(unit).next().is_none()) {
        return instrs;
    }
    let around = Around::of(&turns(&instrs), view);
    let mut out = Vec::with_capacity(instrs.len() + 2 * around.offloads.len());
    for (index, instr) in instrs.into_iter().enumerate() {
        out.extend(around.fetches.get(&index));
        out.push(instr);
        out.extend(around.offloads.get(&index));
    }
    out
}

/// A turn with its first and its last instruction.
struct Placed {
    turn: Turn,
    first: usize,
    last: usize,
}

fn turns(instrs: &[Instr]) -> Vec<Placed> {
    let mut turns: Vec<Placed> = vec![];
    for (index, instr) in instrs.iter().enumerate() {
        let Some(turn) = instr.pass().and_then(crate::Pass::turn) else { continue };
        match turns.last_mut() {
            Some(placed) if placed.turn == turn => placed.last = index,
            Some(_) | None => turns.push(Placed { turn, first: index, last: index }),
        }
    }
    turns
}

/// The fetch before, and the copy to the host after, each instruction.
#[derive(Default)]
struct Around {
    fetches: BTreeMap<usize, Instr>,
    offloads: BTreeMap<usize, Instr>,
}

impl Around {
    fn of(turns: &[Placed], view: &RankView) -> Around {
        let mut around = Around::default();
        let mut forward: HashMap<(Unit, Microbatch), usize> = HashMap::new();
        for (number, Placed { turn: Turn { unit, microbatch, half }, .. }) in turns.iter().enumerate() {
            let (unit, microbatch) = (*unit, *microbatch);
            match half {
                Half::Forward => {
                    forward.insert((unit, microbatch), number);
                }
                // Weights that have a turn of their own find what the turn of the inputs fetched.
                Half::Backward => {
                    let made = forward.remove(&(unit, microbatch)).filter(|made| number - made > NEAR);
                    let kept = view.offloaded_activations(unit).next();
                    if let (Some(made), Some(_)) = (made, kept) {
                        around.offloads.insert(turns[made].last, Instr::OffloadActs { unit, microbatch });
                        around.fetches.insert(turns[number - 1].first, Instr::FetchActs { unit, microbatch });
                    }
                }
            }
        }
        around
    }
}
