//! Decodes `mbarrier`, the fences of asynchronous operations, and barriers of a cluster.

use super::asynchronous::{Asynchronous, Patience, Phase, PhaseKind, PhaseOperation};
use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{Op, Slot};
use crate::ptx::{Operand, PtxError, Scalar, Space, Statement};

impl Decoder {
    /// Decodes an operation on an mbarrier.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn phase(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let name = ["init", "inval", "arrive", "expect_tx", "test_wait", "try_wait", "pending_count"];
        let name = name.into_iter().find(|name| m.takes(name)).ok_or_else(|| m.unsupported())?;
        let expects = name == "arrive" && m.takes("expect_tx");
        let is_parity = name.ends_with("_wait") && m.takes("parity");
        m.pass(&["release", "acquire", "relaxed", "cta", "cluster"]);
        let is_shared = m.takes("shared") || m.takes("shared::cta") || m.takes("shared::cluster");
        let space = if is_shared { Space::Shared } else { Space::Generic };
        if m.scalar()? != Scalar::B64 {
            return Err(m.unsupported());
        }
        let operands = &*statement.operands;
        let (place, kind) = match (name, operands) {
            ("init", [place, count]) => (place, PhaseKind::Initialize(self.small(statement, count, Scalar::U32)?)),
            ("inval", [place]) => (place, PhaseKind::Invalidate),
            ("expect_tx", [place, bytes]) => {
                (place, PhaseKind::ExpectBytes(self.small(statement, bytes, Scalar::U32)?))
            }
            ("arrive", [.., Operand::Address(..)] | [.., Operand::Address(..), _]) => {
                self.arrival(statement, expects)?
            }
            ("test_wait" | "try_wait", [to, place, phase] | [to, place, phase, _]) => {
                let to = self.to_predicate(statement, to)?;
                let phase = if is_parity {
                    Phase::Parity(self.small(statement, phase, Scalar::U32)?)
                } else {
                    Phase::Of(self.wide(statement, phase, Scalar::B64)?)
                };
                let patience = if name == "try_wait" { Patience::Try } else { Patience::Test };
                (place, PhaseKind::Wait { to, phase, patience })
            }
            ("pending_count", [to, state]) => {
                let (to, state) = (self.to_small(statement, to)?, self.wide(statement, state, Scalar::B64)?);
                return Ok(of(PhaseOperation { barrier: self.no_address(), kind: PhaseKind::Pending(to, state) }));
            }
            _ => return Err(m.unsupported()),
        };
        Ok(of(PhaseOperation { barrier: self.in_space(statement, place, space)?, kind }))
    }

    fn arrival<'a>(&mut self, statement: &'a Statement, expects: bool) -> Result<(&'a Operand, PhaseKind), PtxError> {
        let (state, place, number) = match &*statement.operands {
            [place @ Operand::Address(..)] => (None, place, None),
            [place @ Operand::Address(..), number] => (None, place, Some(number)),
            [state, place] => (Some(state), place, None),
            [state, place, number] => (Some(state), place, Some(number)),
            _ => return Err(self.error(statement, "1 to 3 operands are expected")),
        };
        let state = match state {
            Some(state) => self.slot(statement, state)?,
            None => Slot::Sink,
        };
        let number = match number {
            Some(number) => Some(self.small(statement, number, Scalar::U32)?),
            None => None,
        };
        let (count, bytes) = if expects { (None, number) } else { (number, None) };
        Ok((place, PhaseKind::Arrive { state, count, bytes }))
    }

    /// Decodes the fences of asynchronous operations; `None` for those of threads.
    ///
    /// # Errors
    /// A fence that this GPU does not have.
    pub fn asynchronous_fence(&mut self, m: &mut Modifiers) -> Result<Option<Op>, PtxError> {
        if m.takes("mbarrier_init") {
            m.pass(&["release", "cluster"]);
            return Ok(Some(Op::Asynchronous(Asynchronous::BarrierFence)));
        }
        if m.takes("proxy") {
            if !m.takes("async") {
                return Err(m.unsupported());
            }
            m.pass(&["shared::cta", "shared::cluster", "global"]);
            return Ok(Some(Op::Asynchronous(Asynchronous::ProxyFence)));
        }
        Ok(None)
    }

    /// Decodes `barrier.cluster`; `None` for barriers of a block.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn cluster_barrier(&mut self, m: &mut Modifiers) -> Result<Option<Op>, PtxError> {
        if !m.takes("cluster") {
            return Ok(None);
        }
        let is_arrival = m.takes("arrive");
        if !is_arrival && !m.takes("wait") {
            return Err(m.unsupported());
        }
        m.pass(&["release", "relaxed", "acquire", "aligned"]);
        let op = if is_arrival { Asynchronous::ClusterArrive } else { Asynchronous::ClusterWait };
        Ok(Some(Op::Asynchronous(op)))
    }

    /// Decodes `mapa`.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn map_to_block(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        m.pass(&["shared::cluster"]);
        let scalar = m.scalar()?;
        let [to, from, block] = self.operands(statement)?;
        let block = self.small(statement, block, Scalar::U32)?;
        let from = self.source(statement, from, scalar)?;
        Ok(Op::Asynchronous(Asynchronous::MapToBlock(self.slot(statement, to)?, from, block)))
    }
}

fn of(operation: PhaseOperation) -> Op {
    Op::Asynchronous(Asynchronous::Barrier(operation))
}
