//! The order of a warp's registers with products of warpgroups, which read and write them until they are waited for.
//!
//! Compilers move values between registers around a product and mean one register. So a move takes the state of its
//! source along: what may not be done with the source may not be done with its copy.

use std::collections::VecDeque;

use super::fault::{Fault, FaultKind};
use crate::code::{Arithmetic, Instruction, Kernel, Op, Row, Use, small_uses};

/// The registers of a warp.
#[derive(Debug)]
pub struct RegisterOrder {
    rows: Vec<State>,
    /// The registers that instructions may write: constants follow.
    count: usize,
    /// Fences so far.
    fences: u32,
    /// Groups of products that have been ended, and those that have been waited for.
    committed: u32,
    ended: u32,
    /// Products so far, and those up to the end of each group that has not ended.
    products: usize,
    products_of_groups: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// The group, counted from 1, of the product that uses the register, and how.
    busy: Option<(u32, Busy)>,
    /// Columns of the last product of which this is a result.
    columns: u16,
    /// Fences before the last access by an instruction, counted from 1.
    accessed: u32,
    /// The same for writes.
    written: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    /// A product reads it.
    Read,
    /// A product writes it.
    Result,
    /// It is a copy of such a register.
    Copy,
}

impl RegisterOrder {
    /// No products yet.
    pub fn new(kernel: &Kernel) -> RegisterOrder {
        let rows = vec![State::default(); kernel.small];
        RegisterOrder {
            rows,
            count: kernel.small,
            fences: 0,
            committed: 0,
            ended: 0,
            products: 0,
            products_of_groups: VecDeque::new(),
        }
    }

    /// Checks the registers of an instruction that is not a product, and notes their use.
    ///
    /// # Errors
    /// A register that a product uses.
    pub fn check(&mut self, kernel: &Kernel, instruction: &Instruction) -> Result<(), Fault> {
        if let Op::Arithmetic(Arithmetic::MoveSmall(to, from)) = &instruction.op {
            return self.copy(*to, *from);
        }
        let mut fault = Ok(());
        let (count, now) = (self.count, self.fences + 1);
        small_uses(kernel, instruction, &mut |row, how| {
            let Some(state) = self.rows.get_mut(usize::from(row)).filter(|_| usize::from(row) < count) else { return };
            match (state.busy, how) {
                (Some((_, Busy::Result | Busy::Copy)), Use::Read) => {
                    fault = Err("a register is read that a product writes: use wgmma.wait_group before");
                }
                (Some((_, Busy::Result)), Use::Write) => {
                    fault = Err("a register is written that a product writes, too: use wgmma.wait_group before");
                }
                (Some((_, Busy::Read)), Use::Write) => {
                    fault = Err("a register is written that a product reads: use wgmma.wait_group before");
                }
                (Some((_, Busy::Copy)), Use::Write) | (Some((_, Busy::Read)), Use::Read) | (None, _) => {}
            }
            state.accessed = now;
            if how == Use::Write {
                *state = State { busy: None, columns: 0, accessed: now, written: now };
            }
        });
        fault.map_err(|text| Fault::new(FaultKind::Race, text))
    }

    fn copy(&mut self, to: Row, from: Row) -> Result<(), Fault> {
        let from = self.rows.get(usize::from(from)).copied().unwrap_or_default();
        let Some(to) = self.rows.get_mut(usize::from(to)) else { return Ok(()) };
        let is_result = |state: State| matches!(state.busy, Some((_, Busy::Result | Busy::Copy)));
        let is_overwritten = match to.busy {
            Some((_, Busy::Result)) => !is_result(from),
            Some((_, Busy::Read)) => true,
            Some((_, Busy::Copy)) | None => false,
        };
        if is_overwritten {
            let text = "a register is written that a product uses: use wgmma.wait_group before";
            return Err(Fault::new(FaultKind::Race, text));
        }
        let busy = from.busy.filter(|_| is_result(from)).map(|(group, _)| (group, Busy::Copy));
        *to = State { busy, ..from };
        Ok(())
    }

    /// `wgmma.fence`.
    pub fn fence(&mut self) {
        self.fences += 1;
    }

    /// Begins a product with results `d` of `columns` columns, and with the first factor in registers `a`.
    ///
    /// # Errors
    /// A register that was used since the last fence; one that an earlier product uses otherwise.
    pub fn begin(&mut self, d: impl Iterator<Item = Row>, a: &[Row], columns: u16) -> Result<(), Fault> {
        let refuse = |text: &str| Err(Fault::new(FaultKind::Race, text));
        if self.fences == 0 {
            return refuse("a product comes before any wgmma.fence");
        }
        let (now, group) = (self.fences + 1, self.committed + 1);
        for row in a {
            let Some(state) = self.rows.get_mut(usize::from(*row)) else { continue };
            if state.written == now {
                return refuse("a register of the first factor was written since the last wgmma.fence");
            }
            if matches!(state.busy, Some((_, Busy::Result | Busy::Copy))) {
                return refuse(
                    "a register of the first factor is the result of a product that has not been waited for",
                );
            }
            state.busy = Some((group, Busy::Read));
        }
        for row in d {
            let Some(state) = self.rows.get_mut(usize::from(row)) else { continue };
            if state.accessed == now {
                return refuse("a register of the result was used since the last wgmma.fence");
            }
            let is_kept = match state.busy {
                Some((_, Busy::Result | Busy::Copy)) => state.columns == columns,
                Some((_, Busy::Read)) => false,
                None => true,
            };
            if !is_kept {
                return refuse(
                    "a register of the result is used by a product of another shape: use wgmma.wait_group before",
                );
            }
            *state = State { busy: Some((group, Busy::Result)), columns, ..*state };
        }
        self.products += 1;
        Ok(())
    }

    /// The number of the group that products belong to now, counted from 1.
    pub fn group(&self) -> u32 {
        self.committed + 1
    }

    /// `wgmma.commit_group`.
    pub fn commit(&mut self) {
        self.committed += 1;
        self.products_of_groups.push_back(self.products);
    }

    /// `wgmma.wait_group`: the last group that must have ended, where at most `open` may not have; and the products up
    /// to its end that all warps of the warpgroup must have run.
    pub fn wait(&self, open: u32) -> (u32, usize) {
        let ended = self.ended.max(self.committed.saturating_sub(open));
        let groups = (ended - self.ended) as usize;
        (ended, groups.checked_sub(1).and_then(|last| self.products_of_groups.get(last).copied()).unwrap_or(0))
    }

    /// Groups up to one have ended.
    pub fn end(&mut self, ended: u32) {
        self.products_of_groups.drain(..((ended - self.ended) as usize).min(self.products_of_groups.len()));
        self.ended = ended;
        for state in &mut self.rows {
            state.busy = state.busy.filter(|(group, _)| *group > self.ended);
        }
    }
}
