//! Sends and receives where neighbouring units are on different pipeline ranks.

use spec::{Microbatch, Unit};

use crate::{Instr, Place};

/// Receives stand directly before the instruction that needs the value, sends directly after the one that makes it.
pub(super) fn insert(instrs: Vec<Instr>, place: &Place) -> Vec<Instr> {
    let mut out = Vec::with_capacity(instrs.len());
    for instr in instrs {
        let around = if let Instr::Forward { unit, microbatch } = instr {
            around_forward(place, unit, microbatch)
        } else if let Instr::BackwardInput { unit, microbatch } = instr {
            around_backward(place, unit, microbatch)
        } else {
            (None, None)
        };
        out.extend(around.0);
        out.push(instr);
        out.extend(around.1);
    }
    out
}

fn elsewhere(place: &Place, unit: Option<Unit>) -> Option<Unit> {
    unit.filter(|unit| !place.computes(*unit))
}

fn around_forward(place: &Place, unit: Unit, microbatch: Microbatch) -> (Option<Instr>, Option<Instr>) {
    let from = elsewhere(place, place.previous(unit));
    let to = elsewhere(place, place.next(unit));
    (from.map(|unit| Instr::RecvAct { unit, microbatch }), to.map(|_| Instr::SendAct { unit, microbatch }))
}

fn around_backward(place: &Place, unit: Unit, microbatch: Microbatch) -> (Option<Instr>, Option<Instr>) {
    let from = elsewhere(place, place.next(unit));
    let to = elsewhere(place, place.previous(unit));
    (from.map(|_| Instr::RecvGrad { unit, microbatch }), to.map(|unit| Instr::SendGrad { unit, microbatch }))
}
