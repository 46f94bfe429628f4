//! Gathering sharded parameters for the units that compute on them, and giving them up again.

use std::collections::{BTreeMap, HashMap};

use config::{Microbatch, Reshard, Unit, ZeroStage};

use crate::{Instr, Pass, RankView, Value};

/// Where parameters are sharded, gathers them `prefetch` uses ahead of each use and frees them after it, or, where they
/// are kept for the backward pass, after that. Parameters with a use in between stay.
///
/// A use is a run of instructions of one computing unit that read its parameters.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    let ZeroStage::Three { gathering, .. } = view.zero else { return instrs };
    let uses = uses(&instrs, view);
    let mut spans: BTreeMap<Unit, Vec<Span>> = BTreeMap::new();
    let mut add = |by: Unit, span: Span| {
        for unit in view.reads_parameters_of(by) {
            spans.entry(unit).or_default().push(span);
        }
    };
    for (index, of) in uses.iter().enumerate() {
        add(of.by, Span { first: index.saturating_sub(gathering.prefetch), last: index, wanted: index });
    }
    match gathering.reshard {
        Reshard::AfterUse => {}
        Reshard::AfterBackward => {
            for ((by, _), (first, last)) in passes(&uses) {
                add(by, Span { first, last, wanted: first });
            }
        }
    }
    let mut insertions = Insertions::default();
    for (unit, spans) in spans {
        for Span { first, last, wanted } in joined(spans) {
            insertions.gathers.entry(uses[first].start).or_default().push((wanted, unit));
            insertions.frees.entry(uses[last].end).or_default().push(unit);
        }
    }
    insertions.insert_into(instrs)
}

/// Instructions of one computing unit, none other between them, that read its parameters.
struct Use {
    by: Unit,
    /// Of these microbatches.
    microbatches: Vec<Microbatch>,
    /// First and last instruction.
    start: usize,
    end: usize,
}

fn uses(instrs: &[Instr], view: &RankView) -> Vec<Use> {
    let mut uses: Vec<Use> = vec![];
    for (index, instr) in instrs.iter().enumerate() {
        let (Some(Pass { unit: by, microbatch, .. }), true) = (instr.pass(), reads_parameters(*instr, view)) else {
            continue;
        };
        match uses.last_mut() {
            Some(last) if last.by == by => {
                last.end = index;
                last.microbatches.push(microbatch);
            }
            Some(_) | None => uses.push(Use { by, microbatches: vec![microbatch], start: index, end: index }),
        }
    }
    uses
}

fn reads_parameters(instr: Instr, view: &RankView) -> bool {
    instr.effects(view).reads.iter().any(|value| matches!(value, Value::Gathered(_)))
}

/// The first and the last use by each unit for each microbatch.
fn passes(uses: &[Use]) -> HashMap<(Unit, Microbatch), (usize, usize)> {
    let mut passes = HashMap::new();
    for (index, of) in uses.iter().enumerate() {
        for microbatch in &of.microbatches {
            passes.entry((of.by, *microbatch)).or_insert((index, index)).1 = index;
        }
    }
    passes
}

/// Uses from the first to the last of which a unit's parameters are whole, and the first that wants them.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    last: usize,
    wanted: usize,
}

/// Spans that meet or follow each other directly become one.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| (span.first, span.wanted));
    let mut joined: Vec<Span> = vec![];
    for span in spans {
        match joined.last_mut() {
            Some(before) if span.first <= before.last + 1 => {
                before.last = before.last.max(span.last);
                before.wanted = before.wanted.min(span.wanted);
            }
            Some(_) | None => joined.push(span),
        }
    }
    joined
}

/// The gathers before, and the frees after, each instruction.
#[derive(Default)]
struct Insertions {
    /// With the use that wants it: what is wanted first is gathered first.
    gathers: BTreeMap<usize, Vec<(usize, Unit)>>,
    frees: BTreeMap<usize, Vec<Unit>>,
}

impl Insertions {
    fn insert_into(mut self, instrs: Vec<Instr>) -> Vec<Instr> {
        let mut out = Vec::with_capacity(2 * instrs.len());
        for (index, instr) in instrs.into_iter().enumerate() {
            let mut gathers = self.gathers.remove(&index).unwrap_or_default();
            gathers.sort_unstable();
            out.extend(gathers.into_iter().map(|(_, unit)| Instr::GatherParams { unit }));
            out.push(instr);
            let frees = self.frees.remove(&index).unwrap_or_default();
            out.extend(frees.into_iter().map(|unit| Instr::FreeParams { unit }));
        }
        out
    }
}
