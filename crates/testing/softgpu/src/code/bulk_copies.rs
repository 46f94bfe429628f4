//! Decodes `cp.async.bulk`: copies of boxes and of consecutive bytes.

use super::asynchronous::{Asynchronous, BulkCopy, BulkGroup, MAX_DIMS, TensorBox};
use super::decoder::{Decoder, bits_of};
use super::modifiers::Modifiers;
use super::operations::{Address, Op, Slot};
use crate::ptx::{Operand, PtxError, Scalar, Space, Statement};

/// Dims of a tensor by their modifier.
const DIMS: &[(&str, usize)] = &[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)];
/// Modifiers that change nothing which can be seen.
const HINTS: &[&str] = &["tile", "L2::cache_hint"];

impl Decoder {
    /// Decodes `cp.async.bulk`.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn bulk_copy(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        if m.takes("commit_group") {
            return Ok(Op::Asynchronous(Asynchronous::CopyGroup(BulkGroup::Commit)));
        }
        if m.takes("wait_group") {
            let is_read = m.takes("read");
            let [Operand::Immediate(count)] = self.operands(statement)? else {
                return Err(self.error(statement, "the number of groups must be a constant"));
            };
            let count = bits_of(*count, Scalar::U32) as u32;
            let group = if is_read { BulkGroup::WaitRead(count) } else { BulkGroup::Wait(count) };
            return Ok(Op::Asynchronous(Asynchronous::CopyGroup(group)));
        }
        if m.takes("prefetch") {
            m.pass(&["L2", "global", "tensor", "tile", "L2::cache_hint"]);
            m.takes_one(DIMS);
            return Ok(Op::Nothing);
        }
        let dims = if m.takes("tensor") { Some(m.takes_one(DIMS).ok_or_else(|| m.unsupported())?) } else { None };
        let is_multicast = m.takes("multicast::cluster");
        let policies = usize::from(statement.parts.iter().any(|part| part == "L2::cache_hint"));
        m.pass(HINTS);
        let is_load = m.takes("mbarrier::complete_tx::bytes");
        let spaces = [m.takes("shared::cluster"), m.takes("shared::cta"), m.takes("global"), m.takes("bulk_group")];
        let operands = &statement.operands[..statement.operands.len().saturating_sub(policies)];
        let copy = match (spaces, is_load, dims, operands) {
            (
                [true, false, true, false] | [false, true, true, false],
                true,
                Some(dims),
                [to, from, barrier, blocks @ ..],
            ) if blocks.len() == usize::from(is_multicast) => {
                let blocks = match blocks.first() {
                    Some(blocks) => Some(self.small(statement, blocks, Scalar::B16)?),
                    None => None,
                };
                BulkCopy::LoadBox {
                    to: self.in_space(statement, to, Space::Shared)?,
                    from: self.tensor_box(statement, from, dims)?,
                    barrier: self.in_space(statement, barrier, Space::Shared)?,
                    blocks,
                }
            }
            ([false, true, true, true], false, Some(dims), [to, from]) => BulkCopy::StoreBox {
                to: self.tensor_box(statement, to, dims)?,
                from: self.in_space(statement, from, Space::Shared)?,
            },
            ([true, false, true, false] | [false, true, true, false], true, None, [to, from, bytes, barrier])
                if !is_multicast =>
            {
                BulkCopy::Load {
                    to: self.in_space(statement, to, Space::Shared)?,
                    from: self.in_space(statement, from, Space::Global)?,
                    bytes: self.small(statement, bytes, Scalar::U32)?,
                    barrier: self.in_space(statement, barrier, Space::Shared)?,
                }
            }
            ([false, true, true, true], false, None, [to, from, bytes]) => BulkCopy::Store {
                to: self.in_space(statement, to, Space::Global)?,
                from: self.in_space(statement, from, Space::Shared)?,
                bytes: self.small(statement, bytes, Scalar::U32)?,
            },
            _ => return Err(m.unsupported()),
        };
        Ok(Op::Asynchronous(Asynchronous::Copy(copy)))
    }

    fn tensor_box(&mut self, statement: &Statement, operand: &Operand, dims: usize) -> Result<TensorBox, PtxError> {
        let Operand::Box(base, elements) = operand else {
            return Err(self.error(statement, "a box must be written [map, {coordinates}]"));
        };
        if elements.len() != dims {
            let text = format!("a box has {} coordinates; {dims} are expected", elements.len());
            return Err(self.error(statement, &text));
        }
        let map = self.in_space(statement, &Operand::Address(base.clone(), 0), Space::Generic)?;
        let mut coordinates = [0; MAX_DIMS];
        for (row, element) in coordinates.iter_mut().zip(elements) {
            *row = self.small(statement, element, Scalar::S32)?;
        }
        Ok(TensorBox { map, coordinates, dims: dims as u8 })
    }

    /// An address that no instruction reads.
    pub fn no_address(&mut self) -> Address {
        Address { base: Slot::Wide(self.wide_constant(0)), offset: 0, space: Space::Shared }
    }
}
