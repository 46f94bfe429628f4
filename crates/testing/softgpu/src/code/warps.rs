//! Decodes instructions that other lanes or warps take part in.

use super::decoder::Decoder;
use super::kernel::Constant;
use super::modifiers::Modifiers;
use super::operations::{AtomicOp, Op, Reach, Row, Shuffle, ShuffleMode, Vote, VoteMode};
use crate::ptx::{Operand, PtxError, Scalar, Statement};

impl Decoder {
    /// Decodes an instruction that other lanes or warps take part in.
    ///
    /// # Errors
    /// An instruction that this GPU does not have.
    pub fn across_lanes(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        match m.base() {
            "shfl" => self.shuffle(m, statement),
            "vote" => self.vote(m, statement),
            "redux" => self.reduce(m, statement),
            "match" => self.matching(m, statement),
            "activemask" => {
                m.scalar()?;
                let [to] = self.operands(statement)?;
                Ok(Op::ActiveMask(self.to_small(statement, to)?))
            }
            "elect" => self.elect(m, statement),
            "bar" | "barrier" => self.barrier(m, statement),
            "membar" | "fence" => {
                if let Some(fence) = self.asynchronous_fence(m)? {
                    return Ok(fence);
                }
                m.pass(&["sc", "acq_rel", "acquire", "release"]);
                let reach = m.takes_one(&[
                    ("cta", Reach::Block),
                    ("gl", Reach::Gpu),
                    ("gpu", Reach::Gpu),
                    ("sys", Reach::Gpu),
                    ("cluster", Reach::Gpu),
                ]);
                Ok(Op::Fence(reach.ok_or_else(|| m.unsupported())?))
            }
            "trap" | "brkpt" => Ok(Op::Trap),
            _ => Err(m.unsupported()),
        }
    }

    fn members(&mut self, m: &mut Modifiers, statement: &Statement, operand: &Operand) -> Result<Row, PtxError> {
        if !m.takes("sync") {
            return Err(m.unsupported());
        }
        self.small(statement, operand, Scalar::B32)
    }

    fn shuffle(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let mode = m.takes_one(&[
            ("up", ShuffleMode::Up),
            ("down", ShuffleMode::Down),
            ("bfly", ShuffleMode::Butterfly),
            ("idx", ShuffleMode::Index),
        ]);
        let mode = mode.ok_or_else(|| m.unsupported())?;
        m.scalar()?;
        let [to, from, lane, clamp, members] = self.operands(statement)?;
        let members = self.members(m, statement, members)?;
        let (to, is_in_range) =
            if let Operand::Pair(to, range) = to { (&**to, self.sinkable(statement, range)?) } else { (to, None) };
        let mut source = |operand| self.small(statement, operand, Scalar::B32);
        let (from, lane, clamp) = (source(from)?, source(lane)?, source(clamp)?);
        let to = self.to_small(statement, to)?;
        Ok(Op::Shuffle(Shuffle { mode, to, is_in_range, from, lane, clamp, members }))
    }

    fn vote(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let mode = m.takes_one(&[
            ("all", VoteMode::All),
            ("any", VoteMode::Any),
            ("uni", VoteMode::Uniform),
            ("ballot", VoteMode::Ballot),
        ]);
        let mode = mode.ok_or_else(|| m.unsupported())?;
        m.scalar()?;
        let [to, from, members] = self.operands(statement)?;
        let members = self.members(m, statement, members)?;
        let from = self.predicate(statement, from)?;
        let to = match mode {
            VoteMode::Ballot => self.to_small(statement, to)?,
            VoteMode::All | VoteMode::Any | VoteMode::Uniform => self.to_predicate(statement, to)?,
        };
        Ok(Op::Vote(Vote { mode, to, from, members }))
    }

    fn reduce(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let op = m.takes_one(&[
            ("add", AtomicOp::Add),
            ("min", AtomicOp::Min),
            ("max", AtomicOp::Max),
            ("and", AtomicOp::And),
            ("or", AtomicOp::Or),
            ("xor", AtomicOp::Xor),
        ]);
        let op = op.ok_or_else(|| m.unsupported())?;
        let scalar = m.scalar()?;
        if scalar.bytes() != 4 || scalar.is_float() {
            return Err(m.unsupported());
        }
        let [to, from, members] = self.operands(statement)?;
        let members = self.members(m, statement, members)?;
        let from = self.small(statement, from, scalar)?;
        Ok(Op::Reduce { op, is_signed: scalar.is_signed(), to: self.to_small(statement, to)?, from, members })
    }

    fn matching(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_all = m.takes("all");
        if !is_all && !m.takes("any") {
            return Err(m.unsupported());
        }
        let scalar = m.scalar()?;
        let [to, from, members] = self.operands(statement)?;
        let members = self.members(m, statement, members)?;
        let (to, found) =
            if let Operand::Pair(to, found) = to { (&**to, self.sinkable(statement, found)?) } else { (to, None) };
        let from = self.source(statement, from, scalar)?;
        Ok(Op::Match { is_all, to: self.to_small(statement, to)?, found, from, members })
    }

    fn elect(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let [to, members] = self.operands(statement)?;
        let members = self.members(m, statement, members)?;
        let Operand::Pair(to, is_elected) = to else { return Err(m.unsupported()) };
        let to = self.slot(statement, to)?;
        Ok(Op::Elect { to, is_elected: self.to_predicate(statement, is_elected)?, members })
    }

    fn barrier(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        if m.base() == "bar" && m.takes("warp") {
            let [members] = self.operands(statement)?;
            return Ok(Op::WarpBarrier(self.members(m, statement, members)?));
        }
        if let Some(cluster) = self.cluster_barrier(m)? {
            return Ok(cluster);
        }
        m.pass(&["cta"]);
        let is_arrival = m.takes("arrive");
        if !is_arrival && !m.takes("sync") {
            return Err(m.unsupported());
        }
        // `bar` is `barrier` with .aligned.
        let is_aligned = m.takes("aligned") || m.base() == "bar";
        let (id, threads) = match &*statement.operands {
            [] => (None, None),
            [id] => (Some(id), None),
            [id, threads] => (Some(id), Some(threads)),
            _ => return Err(m.unsupported()),
        };
        let id = match id {
            Some(id) => self.small(statement, id, Scalar::U32)?,
            None => self.small_constant(Constant::Value(0)),
        };
        let threads = match threads {
            Some(threads) => Some(self.small(statement, threads, Scalar::U32)?),
            None => None,
        };
        Ok(Op::Barrier { id, threads, is_arrival, is_aligned })
    }
}
