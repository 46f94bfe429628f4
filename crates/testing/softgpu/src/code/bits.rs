//! Decodes operations of bits: logic, shifts, fields and lookups.

use super::arithmetic::integer_format;
use super::decoder::{Decoder, bits_of};
use super::modifiers::Modifiers;
use super::operations::{Arithmetic, Integer, IntegerFormat, Logic, Op, PredicateSource};
use crate::ptx::{Operand, PtxError, Scalar, Statement};

impl Decoder {
    /// Decodes an operation of bits.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn bits(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let op = match m.base() {
            "and" | "or" | "xor" | "not" | "cnot" => self.logic(m, statement)?,
            "shl" | "shr" => self.shift(m, statement)?,
            "bfe" | "bfi" => self.field(m, statement)?,
            "clz" | "popc" | "brev" | "bfind" => self.count(m, statement)?,
            _ => self.three_words(m, statement)?,
        };
        Ok(Op::Arithmetic(op))
    }

    fn logic(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let scalar = m.scalar()?;
        if scalar == Scalar::Pred {
            return self.predicate_logic(m, statement);
        }
        let op = match m.base() {
            "and" => Integer::And,
            "or" => Integer::Or,
            "xor" => Integer::Xor,
            "not" => Integer::Not,
            _ => Integer::LogicalNot,
        };
        let format = integer_format(scalar).ok_or_else(|| m.unsupported())?;
        let (to, from) = self.result_and_sources(statement, scalar)?;
        Ok(Arithmetic::Integer(op, format, to, from))
    }

    fn predicate_logic(&mut self, m: &Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let logic = match m.base() {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => {
                let [to, from] = self.operands(statement)?;
                let from = self.predicate(statement, from)?;
                let inverted = PredicateSource { is_negated: !from.is_negated, ..from };
                return Ok(Arithmetic::Logic(Logic::First, self.to_predicate(statement, to)?, inverted, inverted));
            }
            _ => return Err(m.unsupported()),
        };
        let [to, a, b] = self.operands(statement)?;
        let (a, b) = (self.predicate(statement, a)?, self.predicate(statement, b)?);
        Ok(Arithmetic::Logic(logic, self.to_predicate(statement, to)?, a, b))
    }

    fn shift(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let scalar = m.scalar()?;
        let op = match (m.base(), scalar.is_signed()) {
            ("shl", _) => Integer::ShiftLeft,
            (_, true) => Integer::ShiftRightS,
            (_, false) => Integer::ShiftRightU,
        };
        let [to, from, by] = self.operands(statement)?;
        let by = self.small(statement, by, Scalar::U32)?;
        let from = self.row(statement, from, scalar)?;
        let to = self.to_row(statement, to, scalar)?;
        Ok(match integer_format(scalar).ok_or_else(|| m.unsupported())? {
            IntegerFormat::Wide => Arithmetic::ShiftWide(op, to, from, by),
            format @ (IntegerFormat::U16 | IntegerFormat::S16 | IntegerFormat::Small) => {
                Arithmetic::Integer(op, format, to, [from, by, by, by])
            }
        })
    }

    fn field(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let scalar = m.scalar()?;
        let format = integer_format(scalar).ok_or_else(|| m.unsupported())?;
        let is_insertion = m.base() == "bfi";
        let op = match (is_insertion, scalar.is_signed()) {
            (true, _) => Integer::Insert,
            (false, true) => Integer::ExtractS,
            (false, false) => Integer::ExtractU,
        };
        // Position and length have 32 bits, also for fields of 64.
        if format == IntegerFormat::Wide {
            return Err(m.unsupported());
        }
        let (to, from) = self.result_and_sources(statement, scalar)?;
        Ok(Arithmetic::Integer(op, format, to, from))
    }

    fn count(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let is_distance = m.takes("shiftamt");
        let scalar = m.scalar()?;
        let op = match (m.base(), is_distance, scalar.is_signed()) {
            ("clz", ..) => Integer::LeadingZeros,
            ("popc", ..) => Integer::Population,
            ("brev", ..) => Integer::Reverse,
            (_, false, true) => Integer::FindS,
            (_, false, false) => Integer::FindU,
            (_, true, true) => Integer::FindShiftS,
            (_, true, false) => Integer::FindShiftU,
        };
        let [to, from] = self.operands(statement)?;
        let source = self.row(statement, from, scalar)?;
        match (scalar.bytes(), op) {
            (8, Integer::Reverse) => {
                let to = self.to_wide(statement, to)?;
                Ok(Arithmetic::Integer(op, IntegerFormat::Wide, to, [source; 4]))
            }
            (8, _) => Ok(Arithmetic::CountWide(op, self.to_small(statement, to)?, source)),
            (4, _) => Ok(Arithmetic::Integer(op, IntegerFormat::Small, self.to_small(statement, to)?, [source; 4])),
            _ => Err(m.unsupported()),
        }
    }

    fn three_words(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let is_left = m.takes("l");
        let is_right = m.takes("r");
        let clamps = m.takes("clamp");
        let wraps = m.takes("wrap");
        if m.scalar()? != Scalar::B32 {
            return Err(m.unsupported());
        }
        let op = match (m.base(), is_left, is_right, clamps, wraps) {
            ("shf", true, false, true, false) => Integer::FunnelLeftClamp,
            ("shf", true, false, false, true) => Integer::FunnelLeftWrap,
            ("shf", false, true, true, false) => Integer::FunnelRightClamp,
            ("shf", false, true, false, true) => Integer::FunnelRightWrap,
            ("prmt", false, false, false, false) => Integer::Permute,
            ("lop3", false, false, false, false) => {
                let [to, a, b, c, Operand::Immediate(table)] = self.operands(statement)? else {
                    return Err(self.error(statement, "the table must be a number"));
                };
                let mut source = |operand| self.small(statement, operand, Scalar::B32);
                let from = [source(a)?, source(b)?, source(c)?];
                let op = Integer::Lookup(bits_of(*table, Scalar::U8) as u8);
                let to = self.to_small(statement, to)?;
                return Ok(Arithmetic::Integer(op, IntegerFormat::Small, to, [from[0], from[1], from[2], from[0]]));
            }
            _ => return Err(m.unsupported()),
        };
        let (to, from) = self.result_and_sources(statement, Scalar::B32)?;
        Ok(Arithmetic::Integer(op, IntegerFormat::Small, to, from))
    }
}
