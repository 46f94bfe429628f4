//! Activations in memory of the host between the passes that make and need them.

use std::collections::{BTreeMap, HashMap};

use config::{Microbatch, Unit};

use crate::{Half, Instr, RankView, UnitPasses};

/// Unit passes from a forward to its backward at which activations stay in the arena: with one in between, a
/// fetch would be issued before the copy to the host has ended.
const NEAR: usize = 2;

/// Copies what a layer's forward pass leaves to memory of the host after it, and back one unit's passes before its
/// backward pass, whose time then hides the copy. Where the backward pass follows soon, there are no copies.
///
/// At most three layers have activations in the arena, where backward passes are in one piece: the one that computes,
/// the one before it, which is copied, and the one after it, which is fetched.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    if view.computing_units().all(|unit| view.offloaded_activations(unit).next().is_none()) {
        return instrs;
    }
    let insertions = Insertions::of(&all_passes(&instrs), view);
    let mut out = Vec::with_capacity(instrs.len() + 2 * insertions.offloads.len());
    for (index, instr) in instrs.into_iter().enumerate() {
        out.extend(insertions.fetches.get(&index));
        out.push(instr);
        out.extend(insertions.offloads.get(&index));
    }
    out
}

/// Passes of a unit with their first and their last instruction.
struct Placed {
    unit_passes: UnitPasses,
    first: usize,
    last: usize,
}

fn all_passes(instrs: &[Instr]) -> Vec<Placed> {
    let mut all_passes: Vec<Placed> = vec![];
    for (index, instr) in instrs.iter().enumerate() {
        let Some(unit_passes) = instr.pass().and_then(crate::Pass::unit_passes) else { continue };
        match all_passes.last_mut() {
            Some(placed) if placed.unit_passes == unit_passes => placed.last = index,
            Some(_) | None => all_passes.push(Placed { unit_passes, first: index, last: index }),
        }
    }
    all_passes
}

/// The fetch before, and the copy to the host after, each instruction.
#[derive(Default)]
struct Insertions {
    fetches: BTreeMap<usize, Instr>,
    offloads: BTreeMap<usize, Instr>,
}

impl Insertions {
    fn of(all_passes: &[Placed], view: &RankView) -> Insertions {
        let mut insertions = Insertions::default();
        let mut forward: HashMap<(Unit, Microbatch), usize> = HashMap::new();
        for (number, Placed { unit_passes: UnitPasses { unit, microbatch, half }, .. }) in all_passes.iter().enumerate()
        {
            let (unit, microbatch) = (*unit, *microbatch);
            match half {
                Half::Forward => {
                    forward.insert((unit, microbatch), number);
                }
                // Weight passes that are apart find what the input passes fetched.
                Half::Backward => {
                    let made = forward.remove(&(unit, microbatch)).filter(|made| number - made > NEAR);
                    let kept = view.offloaded_activations(unit).next();
                    if let (Some(made), Some(_)) = (made, kept) {
                        insertions.offloads.insert(all_passes[made].last, Instr::OffloadActs { unit, microbatch });
                        insertions.fetches.insert(all_passes[number - 1].first, Instr::FetchActs { unit, microbatch });
                    }
                }
            }
        }
        insertions
    }
}
