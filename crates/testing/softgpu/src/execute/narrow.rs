//! Numbers of 16 bits, one or two in a register.

use super::exact::{BF16, F16, Format};
use super::number::{chosen, saturated, sum};
use crate::code::{Number, NumberFormat, NumberOp, Rounding};

/// An operation of one lane.
pub fn number(number: Number, a: u32, b: u32, c: u32) -> u32 {
    let (format, is_pair) = match number.format {
        NumberFormat::F16 | NumberFormat::F32 | NumberFormat::F64 => (F16, false),
        NumberFormat::F16x2 => (F16, true),
        NumberFormat::Bf16 => (BF16, false),
        NumberFormat::Bf16x2 => (BF16, true),
    };
    let low = one(number, format, a, b, c);
    if is_pair { one(number, format, a >> 16, b >> 16, c >> 16) << 16 | low } else { low }
}

fn one(number: Number, format: Format, a: u32, b: u32, c: u32) -> u32 {
    let halves = [a, b, c].map(|bits| u64::from(bits & 0xffff));
    let halves = halves.map(|bits| if number.flushes { format.flushed(bits) } else { bits });
    let [x, y, z] = halves.map(|bits| format.to_f64(bits));
    let nearest = Rounding::Nearest;
    let exact = match number.op {
        NumberOp::Add => sum(x, y, nearest),
        NumberOp::Sub => sum(x, -y, nearest),
        NumberOp::Multiply => x * y,
        NumberOp::Fused => sum(x * y, z, nearest),
        NumberOp::FusedRelu => {
            let sum = sum(x * y, z, nearest);
            if sum <= 0.0 { 0.0 } else { sum }
        }
        NumberOp::Min | NumberOp::Max | NumberOp::MinNaN | NumberOp::MaxNaN => {
            chosen(number.op, x as f32, y as f32).into()
        }
        NumberOp::Absolute => return (halves[0] & 0x7fff) as u32,
        NumberOp::Negate => return (halves[0] ^ 0x8000) as u32,
        NumberOp::CopySign => return (halves[0] & 0x8000 | halves[1] & 0x7fff) as u32,
        // The decoder makes none of these.
        NumberOp::Divide | NumberOp::SquareRoot | NumberOp::Reciprocal => f64::NAN,
    };
    let exact = if number.saturates { f64::from(saturated(exact as f32)) } else { exact };
    let bits = format.of_f64(exact, nearest);
    (if number.flushes { format.flushed(bits) } else { bits }) as u32
}
