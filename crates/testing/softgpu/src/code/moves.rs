//! Decodes moves, packing, conversions and addresses in windows.

use super::arithmetic::rounding;
use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{Arithmetic, Conversion, Logic, Op, PredicateSource, Rounding, Slot};
use crate::memory::windows::window_start;
use crate::ptx::{Immediate, Operand, PtxError, Scalar, Space, Special, Statement, Width};

impl Decoder {
    /// Decodes a move.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn movement(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let scalar = m.scalar()?;
        let [to, from] = self.operands(statement)?;
        if *from == Operand::Special(Special::Clock) {
            return Ok(Op::Clock(self.slot(statement, to)?));
        }
        let op = match (to, from) {
            (to, Operand::Vector(parts)) => self.pack(statement, to, parts, scalar)?,
            (Operand::Vector(parts), from) => self.unpack(statement, parts, from, scalar)?,
            (to, from) => match scalar.width() {
                Width::Predicate => self.move_predicate(statement, to, from)?,
                Width::Small => {
                    Arithmetic::MoveSmall(self.to_small(statement, to)?, self.small(statement, from, scalar)?)
                }
                Width::Wide => Arithmetic::MoveWide(self.to_wide(statement, to)?, self.wide(statement, from, scalar)?),
            },
        };
        Ok(Op::Arithmetic(op))
    }

    fn move_predicate(&mut self, statement: &Statement, to: &Operand, from: &Operand) -> Result<Arithmetic, PtxError> {
        let row = self.to_predicate(statement, to)?;
        let own = PredicateSource { row, is_negated: false };
        // A constant predicate is its own exclusive or, and the inversion of that.
        if let Operand::Immediate(Immediate::Integer(value)) = from {
            let other = PredicateSource { row, is_negated: *value != 0 };
            return Ok(Arithmetic::Logic(Logic::Xor, row, own, other));
        }
        let from = self.predicate(statement, from)?;
        Ok(Arithmetic::Logic(Logic::First, row, from, from))
    }

    fn pack(
        &mut self,
        statement: &Statement,
        to: &Operand,
        parts: &[Operand],
        scalar: Scalar,
    ) -> Result<Arithmetic, PtxError> {
        let bits = scalar.bytes() * 8 / parts.len().max(1);
        let part = part_of(bits).ok_or_else(|| self.error(statement, "parts of this size are not supported"))?;
        let mut rows = Vec::new();
        for operand in parts {
            rows.push(self.small(statement, operand, part)?);
        }
        let to = self.slot(statement, to)?;
        Ok(match (to, &*rows) {
            (Slot::Wide(to), [low, high]) => Arithmetic::Join(to, *low, *high),
            (to, _) => {
                let row = |index: usize| rows.get(index).copied().unwrap_or(rows[0]);
                Arithmetic::Pack(to, std::array::from_fn(row), bits as u8, rows.len() as u8)
            }
        })
    }

    fn unpack(
        &mut self,
        statement: &Statement,
        parts: &[Operand],
        from: &Operand,
        scalar: Scalar,
    ) -> Result<Arithmetic, PtxError> {
        let bits = scalar.bytes() * 8 / parts.len().max(1);
        if part_of(bits).is_none() {
            return Err(self.error(statement, "parts of this size are not supported"));
        }
        let slots = parts.iter().map(|part| self.slot(statement, part)).collect::<Result<Vec<_>, _>>()?;
        let from = self.source(statement, from, scalar)?;
        Ok(match (from, &*slots) {
            (Slot::Wide(from), [low, high]) => Arithmetic::Split(*low, *high, from),
            (from, _) => {
                let slot = |index: usize| slots.get(index).copied().unwrap_or(Slot::Sink);
                Arithmetic::Unpack(std::array::from_fn(slot), from, bits as u8, slots.len() as u8)
            }
        })
    }

    /// Decodes a conversion.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn conversion(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let exact = rounding(m);
        let integral = m.takes_one(&[
            ("rni", Rounding::Nearest),
            ("rzi", Rounding::Zero),
            ("rmi", Rounding::Down),
            ("rpi", Rounding::Up),
        ]);
        let (saturates, is_relu, flushes) = (m.takes("sat"), m.takes("relu"), m.takes("ftz"));
        let to_scalar = m.scalar()?;
        let from_scalar = m.scalar()?;
        let mut conversion = Conversion {
            from: from_scalar,
            to: to_scalar,
            rounding: exact.or(integral).unwrap_or(Rounding::Nearest),
            is_integral: integral.is_some(),
            saturates,
            is_relu,
            flushes,
            low: None,
        };
        let (to, high) = match (&*statement.operands, to_scalar) {
            ([to, high, low], Scalar::F16x2 | Scalar::Bf16x2) => {
                conversion.low = Some(self.small(statement, low, from_scalar)?);
                (to, high)
            }
            ([to, from], _) if !matches!(to_scalar, Scalar::F16x2 | Scalar::Bf16x2) => (to, from),
            _ => return Err(m.unsupported()),
        };
        let from = self.source(statement, high, from_scalar)?;
        let to = self.slot(statement, to)?;
        if to == Slot::Sink || matches!(from_scalar, Scalar::Pred | Scalar::F16x2 | Scalar::Bf16x2) {
            return Err(m.unsupported());
        }
        Ok(Op::Arithmetic(Arithmetic::Convert(conversion, to, from)))
    }

    /// Decodes a conversion of addresses between a space and all memory.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn window(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_inward = m.takes("to");
        let space = m
            .takes_one(&[
                ("global", Space::Global),
                ("const", Space::Const),
                ("shared", Space::Shared),
                ("shared::cta", Space::Shared),
                ("local", Space::Local),
                ("param", Space::Param),
                ("param::entry", Space::Param),
            ])
            .ok_or_else(|| m.unsupported())?;
        if m.scalar()?.bytes() != 8 {
            return Err(m.unsupported());
        }
        let [to, from] = self.operands(statement)?;
        let start = window_start(space);
        let added = if is_inward { start.wrapping_neg() } else { start };
        let from = self.wide(statement, from, Scalar::U64)?;
        Ok(Op::Arithmetic(Arithmetic::Displace(self.to_wide(statement, to)?, from, added)))
    }
}

/// The type of a part of N bits.
fn part_of(bits: usize) -> Option<Scalar> {
    Some(match bits {
        8 => Scalar::B8,
        16 => Scalar::B16,
        32 => Scalar::B32,
        _ => return None,
    })
}
