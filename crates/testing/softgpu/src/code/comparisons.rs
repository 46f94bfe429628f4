//! Decodes comparisons and selections.

use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{Arithmetic, Comparison, ComparisonKind, Logic, Op, Test};
use crate::ptx::{Operand, PtxError, Scalar, Statement, Width};

const fn test(less: bool, equal: bool, greater: bool, unordered: bool) -> Test {
    Test { less, equal, greater, unordered }
}

/// Comparisons by name. Of integers, `lo`, `ls`, `hi` and `hs` are the same as `lt`, `le`, `gt` and `ge`.
const TESTS: &[(&str, Test)] = &[
    ("eq", test(false, true, false, false)),
    ("ne", test(true, false, true, false)),
    ("lt", test(true, false, false, false)),
    ("le", test(true, true, false, false)),
    ("gt", test(false, false, true, false)),
    ("ge", test(false, true, true, false)),
    ("lo", test(true, false, false, false)),
    ("ls", test(true, true, false, false)),
    ("hi", test(false, false, true, false)),
    ("hs", test(false, true, true, false)),
    ("equ", test(false, true, false, true)),
    ("neu", test(true, false, true, true)),
    ("ltu", test(true, false, false, true)),
    ("leu", test(true, true, false, true)),
    ("gtu", test(false, false, true, true)),
    ("geu", test(false, true, true, true)),
    ("num", test(true, true, true, false)),
    ("nan", test(false, false, false, true)),
];

impl Decoder {
    /// Decodes a comparison or selection.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn comparison(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let op = match m.base() {
            "setp" => self.set_predicate(m, statement)?,
            "selp" => self.select(m, statement)?,
            "slct" => self.select_by_sign(m, statement)?,
            _ => return Err(m.unsupported()),
        };
        Ok(Op::Arithmetic(op))
    }

    fn set_predicate(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let test = m.takes_one(TESTS).ok_or_else(|| m.unsupported())?;
        let logic = m.takes_one(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        let flushes = m.takes("ftz");
        let scalar = m.scalar()?;
        let kind = kind(scalar).ok_or_else(|| m.unsupported())?;
        let (to, a, b, combined) = match (&*statement.operands, logic) {
            ([to, a, b], None) => (to, a, b, None),
            ([to, a, b, c], Some(logic)) => (to, a, b, Some((logic, self.predicate(statement, c)?))),
            _ => return Err(m.unsupported()),
        };
        let (to, inverted_to) = if let Operand::Pair(to, inverted) = to {
            (self.sinkable(statement, to)?, self.sinkable(statement, inverted)?)
        } else {
            (self.sinkable(statement, to)?, None)
        };
        let numbers = [self.row(statement, a, scalar)?, self.row(statement, b, scalar)?];
        Ok(Arithmetic::Compare(Comparison { kind, test, combined, to, inverted_to, numbers, flushes }))
    }

    /// The predicate that an operand writes, if anybody reads it.
    ///
    /// # Errors
    /// No predicate.
    pub fn sinkable(&self, statement: &Statement, operand: &Operand) -> Result<Option<u16>, PtxError> {
        if *operand == Operand::Sink { Ok(None) } else { self.to_predicate(statement, operand).map(Some) }
    }

    fn select(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let scalar = m.scalar()?;
        let [to, a, b, predicate] = self.operands(statement)?;
        let predicate = self.predicate(statement, predicate)?;
        let (a, b) = (self.row(statement, a, scalar)?, self.row(statement, b, scalar)?);
        let to = self.to_row(statement, to, scalar)?;
        Ok(match scalar.width() {
            Width::Wide => Arithmetic::SelectWide(predicate, to, a, b),
            Width::Small => Arithmetic::SelectSmall(predicate, to, a, b),
            Width::Predicate => return Err(m.unsupported()),
        })
    }

    fn select_by_sign(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Arithmetic, PtxError> {
        let scalar = m.scalar()?;
        let by = m.scalar()?;
        if scalar.bytes() != 4 || by.bytes() != 4 {
            return Err(m.unsupported());
        }
        let [to, a, b, c] = self.operands(statement)?;
        let rows =
            [self.small(statement, a, scalar)?, self.small(statement, b, scalar)?, self.small(statement, c, by)?];
        let to = self.to_small(statement, to)?;
        Ok(Arithmetic::SelectBySign(to, rows[0], rows[1], rows[2], by == Scalar::F32))
    }
}

fn kind(scalar: Scalar) -> Option<ComparisonKind> {
    Some(match scalar {
        Scalar::B16 | Scalar::U16 => ComparisonKind::U16,
        Scalar::B32 | Scalar::U32 => ComparisonKind::U32,
        Scalar::S16 => ComparisonKind::S16,
        Scalar::S32 => ComparisonKind::S32,
        Scalar::B64 | Scalar::U64 => ComparisonKind::U64,
        Scalar::S64 => ComparisonKind::S64,
        Scalar::F16 => ComparisonKind::F16,
        Scalar::Bf16 => ComparisonKind::Bf16,
        Scalar::F32 => ComparisonKind::F32,
        Scalar::F64 => ComparisonKind::F64,
        Scalar::Pred | Scalar::B8 | Scalar::U8 | Scalar::S8 | Scalar::F16x2 | Scalar::Bf16x2 => return None,
    })
}
