//! Decodes sums, products and quotients of integers and floating-point numbers.

use super::decoder::Decoder;
use super::modifiers::Modifiers;
use super::operations::{
    Arithmetic, Integer, IntegerFormat, MultiplyWide, Number, NumberFormat, NumberOp, Op, Rounding, Row,
};
use crate::ptx::{Operand, PtxError, Scalar, Statement};

/// How an instruction rounds its result, where it says so.
pub fn rounding(m: &mut Modifiers) -> Option<Rounding> {
    m.takes_one(&[
        ("rn", Rounding::Nearest),
        ("rna", Rounding::NearestAway),
        ("rz", Rounding::Zero),
        ("rm", Rounding::Down),
        ("rp", Rounding::Up),
    ])
}

impl Decoder {
    /// Decodes an instruction of arithmetic.
    ///
    /// # Errors
    /// A form that this GPU does not have.
    pub fn arithmetic(&mut self, m: &mut Modifiers, statement: &Statement) -> Result<Op, PtxError> {
        let is_wide_product = m.takes("wide");
        let scalar = m.scalar()?;
        if is_wide_product {
            return self.multiply_wide(m, statement, scalar);
        }
        let op = match number_format(scalar) {
            Some(format) => self.number(m, statement, scalar, format)?,
            None => self.integer(m, statement, scalar)?,
        };
        Ok(Op::Arithmetic(op))
    }

    fn number(
        &mut self,
        m: &mut Modifiers,
        statement: &Statement,
        scalar: Scalar,
        format: NumberFormat,
    ) -> Result<Arithmetic, PtxError> {
        let propagates = m.takes("NaN");
        let is_relu = m.takes("relu");
        let op = match (m.base(), propagates, is_relu) {
            ("add", false, false) => NumberOp::Add,
            ("sub", false, false) => NumberOp::Sub,
            ("mul", false, false) => NumberOp::Multiply,
            ("fma" | "mad", false, false) => NumberOp::Fused,
            ("fma", false, true) => NumberOp::FusedRelu,
            ("div", false, false) => NumberOp::Divide,
            ("rcp", false, false) => NumberOp::Reciprocal,
            ("sqrt", false, false) => NumberOp::SquareRoot,
            ("min", false, false) => NumberOp::Min,
            ("max", false, false) => NumberOp::Max,
            ("min", true, false) => NumberOp::MinNaN,
            ("max", true, false) => NumberOp::MaxNaN,
            ("abs", false, false) => NumberOp::Absolute,
            ("neg", false, false) => NumberOp::Negate,
            ("copysign", false, false) => NumberOp::CopySign,
            _ => return Err(m.unsupported()),
        };
        let rounding = rounding(m);
        // Without .rn a quotient or root of single precision is not exact, and a sum or product may be fused.
        let must_round = matches!(op, NumberOp::Divide | NumberOp::Reciprocal | NumberOp::SquareRoot | NumberOp::Fused);
        if must_round && rounding.is_none() {
            return Err(m.unsupported());
        }
        let is_directed = !matches!(rounding, None | Some(Rounding::Nearest));
        if is_directed && !matches!(format, NumberFormat::F32 | NumberFormat::F64) {
            return Err(m.unsupported());
        }
        let number = Number {
            op,
            format,
            rounding: rounding.unwrap_or(Rounding::Nearest),
            flushes: m.takes("ftz"),
            saturates: m.takes("sat"),
        };
        let is_double = format == NumberFormat::F64;
        // Double precision has neither, and a direction only where something is rounded.
        let rounds = must_round || matches!(op, NumberOp::Add | NumberOp::Sub | NumberOp::Multiply);
        if is_double && (number.flushes || number.saturates || op == NumberOp::FusedRelu || is_directed && !rounds)
            || rounding == Some(Rounding::NearestAway)
        {
            return Err(m.unsupported());
        }
        let (to, from) = self.result_and_sources(statement, scalar)?;
        Ok(Arithmetic::Number(number, to, [from[0], from[1], from[2]]))
    }

    /// The rows of the first operand, which is written, and of all others; those that are missing repeat the first.
    pub fn result_and_sources(&mut self, statement: &Statement, scalar: Scalar) -> Result<(Row, [Row; 4]), PtxError> {
        let Some((to, sources)) = statement.operands.split_first() else {
            return Err(self.error(statement, "operands are missing"));
        };
        let to = self.to_row(statement, to, scalar)?;
        let rows = sources.iter().map(|source| self.row(statement, source, scalar)).collect::<Result<Vec<_>, _>>()?;
        let first = *rows.first().ok_or_else(|| self.error(statement, "operands are missing"))?;
        Ok((to, std::array::from_fn(|index| rows.get(index).copied().unwrap_or(first))))
    }

    fn integer(&mut self, m: &mut Modifiers, statement: &Statement, scalar: Scalar) -> Result<Arithmetic, PtxError> {
        let is_high = m.takes("hi");
        let is_low = m.takes("lo");
        let saturates = m.takes("sat");
        let s = scalar.is_signed();
        let by_sign = |signed, unsigned| if s { signed } else { unsigned };
        let op = match (m.base(), is_high, is_low, saturates) {
            ("add", false, false, false) => Integer::Add,
            ("sub", false, false, false) => Integer::Sub,
            ("add", false, false, true) if scalar == Scalar::S32 => Integer::AddSaturating,
            ("sub", false, false, true) if scalar == Scalar::S32 => Integer::SubSaturating,
            ("mul", false, true, false) => Integer::Multiply,
            ("mul", true, false, false) => by_sign(Integer::MultiplyHighS, Integer::MultiplyHighU),
            ("mad", false, true, false) => Integer::MultiplyAdd,
            ("mad", true, false, false) => by_sign(Integer::MultiplyHighAddS, Integer::MultiplyHighAddU),
            ("mul24", false, true, false) => by_sign(Integer::Multiply24S, Integer::Multiply24U),
            ("div", false, false, false) => by_sign(Integer::DivideS, Integer::DivideU),
            ("rem", false, false, false) => by_sign(Integer::RemainderS, Integer::RemainderU),
            ("min", false, false, false) => by_sign(Integer::MinS, Integer::MinU),
            ("max", false, false, false) => by_sign(Integer::MaxS, Integer::MaxU),
            ("abs", false, false, false) => Integer::Absolute,
            ("neg", false, false, false) => Integer::Negate,
            ("sad", false, false, false) => by_sign(Integer::SumOfDifferencesS, Integer::SumOfDifferencesU),
            _ => return Err(m.unsupported()),
        };
        let format = integer_format(scalar).ok_or_else(|| m.unsupported())?;
        let (to, from) = self.result_and_sources(statement, scalar)?;
        Ok(Arithmetic::Integer(op, format, to, from))
    }

    fn multiply_wide(&mut self, m: &mut Modifiers, statement: &Statement, scalar: Scalar) -> Result<Op, PtxError> {
        let is_narrow = scalar.bytes() == 2;
        let results = [
            (Scalar::U16, Scalar::U32),
            (Scalar::S16, Scalar::U32),
            (Scalar::U32, Scalar::U64),
            (Scalar::S32, Scalar::U64),
        ];
        let Some((_, result)) = results.into_iter().find(|(factor, _)| *factor == scalar) else {
            return Err(m.unsupported());
        };
        let (to, a, b, addend): (&Operand, &Operand, &Operand, Option<&Operand>) =
            match (m.base(), &*statement.operands) {
                ("mul", [to, a, b]) => (to, a, b, None),
                ("mad", [to, a, b, c]) => (to, a, b, Some(c)),
                _ => return Err(m.unsupported()),
            };
        let factors = [self.small(statement, a, scalar)?, self.small(statement, b, scalar)?];
        let addend = match addend {
            Some(addend) => Some(self.row(statement, addend, result)?),
            None => None,
        };
        let to = self.to_row(statement, to, result)?;
        let product = MultiplyWide { is_signed: scalar.is_signed(), is_narrow, to, factors, addend };
        Ok(Op::Arithmetic(Arithmetic::MultiplyWide(product)))
    }
}

/// The format of a floating-point type.
pub fn number_format(scalar: Scalar) -> Option<NumberFormat> {
    Some(match scalar {
        Scalar::F32 => NumberFormat::F32,
        Scalar::F64 => NumberFormat::F64,
        Scalar::F16 => NumberFormat::F16,
        Scalar::F16x2 => NumberFormat::F16x2,
        Scalar::Bf16 => NumberFormat::Bf16,
        Scalar::Bf16x2 => NumberFormat::Bf16x2,
        Scalar::Pred
        | Scalar::B8
        | Scalar::B16
        | Scalar::B32
        | Scalar::B64
        | Scalar::U8
        | Scalar::U16
        | Scalar::U32
        | Scalar::U64
        | Scalar::S8
        | Scalar::S16
        | Scalar::S32
        | Scalar::S64 => return None,
    })
}

/// The format of an integer type, or of bits.
pub fn integer_format(scalar: Scalar) -> Option<IntegerFormat> {
    Some(match scalar {
        Scalar::U16 | Scalar::B16 => IntegerFormat::U16,
        Scalar::S16 => IntegerFormat::S16,
        Scalar::U32 | Scalar::B32 | Scalar::S32 => IntegerFormat::Small,
        Scalar::U64 | Scalar::B64 | Scalar::S64 => IntegerFormat::Wide,
        Scalar::Pred
        | Scalar::B8
        | Scalar::U8
        | Scalar::S8
        | Scalar::F16
        | Scalar::F16x2
        | Scalar::Bf16
        | Scalar::Bf16x2
        | Scalar::F32
        | Scalar::F64 => return None,
    })
}
