//! Decodes products of matrices, loads of their fragments, and copies that run on their own.

use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{CopyGroup, FragmentTransfer, MatrixProduct, NumberFormat, Op, Row};
use crate::code::operations::AsyncCopy;
use crate::ptx::{Operand, PtxError, Scalar, Space, Statement};

impl Decoder {
    /// Decodes `mma`, `ldmatrix`, `stmatrix` and `cp.async`.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn matrix(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        match m.base() {
            "mma" => self.product(m, statement),
            "ldmatrix" => self.fragment(m, statement, false),
            "stmatrix" => self.fragment(m, statement, true),
            "cp" => self.async_copy(m, statement),
            _ => Err(m.unsupported()),
        }
    }

    fn product(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_known = m.takes("sync") && m.takes("aligned") && m.takes("row") && m.takes("col");
        let depth = m.takes_one(&[("m16n8k16", 16), ("m16n8k8", 8)]);
        let types = [m.scalar()?, m.scalar()?, m.scalar()?, m.scalar()?];
        let format = match types {
            [Scalar::F32, Scalar::Bf16, Scalar::Bf16, Scalar::F32] => NumberFormat::Bf16,
            [Scalar::F32, Scalar::F16, Scalar::F16, Scalar::F32] => NumberFormat::F16,
            _ => return Err(m.unsupported()),
        };
        let (true, Some(depth)) = (is_known, depth) else { return Err(m.unsupported()) };
        let [d, a, b, c] = self.operands(statement)?;
        let halves = depth / 8;
        let mut a_rows = [0; 4];
        self.rows(statement, a, &mut a_rows[..2 * halves], Scalar::B32)?;
        let mut b_rows = [0; 2];
        self.rows(statement, b, &mut b_rows[..halves], Scalar::B32)?;
        let mut c_rows = [0; 4];
        self.rows(statement, c, &mut c_rows, Scalar::F32)?;
        let mut d_rows = [0; 4];
        self.rows(statement, d, &mut d_rows, Scalar::F32)?;
        Ok(Op::MatrixProduct(MatrixProduct { format, depth: depth as u8, a: a_rows, b: b_rows, c: c_rows, d: d_rows }))
    }

    /// The rows of a vector of as many registers as `rows` has.
    ///
    /// # Errors
    /// Another number of registers.
    pub fn rows(
        &mut self,
        statement: &Statement,
        operand: &Operand,
        rows: &mut [Row],
        scalar: Scalar,
    ) -> Result<(), PtxError> {
        let elements =
            if let Operand::Vector(elements) = operand { &**elements } else { std::slice::from_ref(operand) };
        if elements.len() != rows.len() {
            let text = format!("a vector has {} registers; {} are expected", elements.len(), rows.len());
            return Err(self.error(statement, &text));
        }
        for (row, element) in rows.iter_mut().zip(elements) {
            *row = self.small(statement, element, scalar)?;
        }
        Ok(())
    }

    fn fragment(&mut self, m: &mut Modifiers, statement: &Statement, is_store: bool) -> Result<Op, PtxError> {
        let is_known = m.takes("sync") && m.takes("aligned") && m.takes("m8n8");
        let count = m.takes_one(&[("x1", 1), ("x2", 2), ("x4", 4)]);
        let is_transposed = m.takes("trans");
        let is_shared = m.takes("shared") || m.takes("shared::cta");
        let (true, Some(count), Scalar::B16) = (is_known, count, m.scalar()?) else { return Err(m.unsupported()) };
        let [first, second] = self.operands(statement)?;
        let (registers, address) = if is_store { (second, first) } else { (first, second) };
        let mut rows = [0; 4];
        self.rows(statement, registers, &mut rows[..count], Scalar::B32)?;
        let space = if is_shared { Space::Shared } else { Space::Generic };
        let address = self.in_space(statement, address, space)?;
        let transfer = FragmentTransfer { address, count: count as u8, is_transposed, rows };
        Ok(if is_store { Op::StoreFragments(transfer) } else { Op::LoadFragments(transfer) })
    }

    fn async_copy(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        if !m.takes("async") {
            return Err(m.unsupported());
        }
        if m.takes("bulk") {
            return self.bulk_copy(m, statement);
        }
        if m.takes("commit_group") {
            return Ok(Op::CopyGroup(CopyGroup::Commit));
        }
        if m.takes("wait_all") {
            return Ok(Op::CopyGroup(CopyGroup::WaitAll));
        }
        if m.takes("wait_group") {
            return match self.operands(statement)? {
                [Operand::Immediate(count)] => {
                    let count = super::decoder::bits_of(*count, Scalar::U32) as u32;
                    Ok(Op::CopyGroup(CopyGroup::Wait(count)))
                }
                [_] => Err(self.error(statement, "the number of groups must be a constant")),
            };
        }
        m.pass(&["ca", "cg", "L2::64B", "L2::128B", "L2::256B"]);
        let has_policy = m.takes("L2::cache_hint");
        let is_known = (m.takes("shared") || m.takes("shared::cta")) && m.takes("global");
        let operands = &statement.operands[..statement.operands.len() - usize::from(has_policy)];
        let (to, from, bytes, filled) = match (operands, is_known) {
            ([to, from, Operand::Immediate(bytes)], true) => (to, from, bytes, None),
            ([to, from, Operand::Immediate(bytes), filled], true) => (to, from, bytes, Some(filled)),
            _ => return Err(m.unsupported()),
        };
        let bytes = super::decoder::bits_of(*bytes, Scalar::U32) as u8;
        if ![4, 8, 16].contains(&bytes) {
            return Err(self.error(statement, "a copy has 4, 8 or 16 bytes"));
        }
        let read_bytes = match filled {
            Some(operand) => Some(self.small(statement, operand, Scalar::U32)?),
            None => None,
        };
        let to = self.in_space(statement, to, Space::Shared)?;
        let from = self.in_space(statement, from, Space::Global)?;
        Ok(Op::AsyncCopy(AsyncCopy { to, from, bytes, read_bytes }))
    }
}
