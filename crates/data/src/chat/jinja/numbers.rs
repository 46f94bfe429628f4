//! Numbers as Python computes and writes them. Integers have 128 bits; more are refused.

use super::meter::{Fault, Meter, fault};
use super::value::{Form, ListBuilder, Value};
use super::writer::TextBuilder;

/// An operation of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideWhole,
    Remainder,
    Power,
}

impl Operation {
    fn sign(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
            Operation::DivideWhole => "//",
            Operation::Remainder => "%",
            Operation::Power => "**",
        }
    }
}

/// A number: booleans are integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    pub(super) fn of(value: &Value) -> Option<Number> {
        match value {
            Value::Bool(value) => Some(Number::Int(i128::from(*value))),
            Value::Int(value) => Some(Number::Int(*value)),
            Value::Float(value) => Some(Number::Float(*value)),
            Value::Undefined
            | Value::None
            | Value::Text(_)
            | Value::List(_)
            | Value::Dict(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => None,
        }
    }

    pub(super) fn as_float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    pub(super) fn value(self) -> Value {
        match self {
            Number::Int(value) => Value::Int(value),
            Number::Float(value) => Value::Float(value),
        }
    }
}

/// `a` and `b` of an operation that computes, joins texts or lists, or repeats them.
pub(super) fn operate(operation: Operation, a: &Value, b: &Value, meter: &Meter) -> Result<Value, Fault> {
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return Ok(compute(operation, a, b)?.value());
    }
    match (operation, a, b) {
        (Operation::Add, Value::Text(a), Value::Text(b)) => {
            let mut text = TextBuilder::new(meter);
            text.push(a)?;
            text.push(b)?;
            text.finish()
        }
        (Operation::Add, Value::List(x), Value::List(y)) if x.form() == y.form() => {
            let mut list = ListBuilder::new(meter);
            for element in x.walk(meter)?.iter().chain(y.walk(meter)?) {
                list.push(element.clone())?;
            }
            list.finish(x.form())
        }
        (Operation::Multiply, Value::Text(_) | Value::List(_), Value::Int(count)) => repeat(a, *count, meter),
        (Operation::Multiply, Value::Int(count), Value::Text(_) | Value::List(_)) => repeat(b, *count, meter),
        (Operation::Remainder, Value::Text(pattern), _) => {
            let arguments = if let Value::List(list) = b
                && list.form() == Form::Tuple
            {
                list.walk(meter)?
            } else {
                std::slice::from_ref(b)
            };
            super::percent_format::percent_format(pattern, arguments, b, meter)
        }
        (_, Value::Undefined, _) | (_, _, Value::Undefined) => {
            Err(fault(format!("{} has an undefined value", operation.sign())))
        }
        _ => Err(fault(format!("{} does not take {} and {}", operation.sign(), a.kind(), b.kind()))),
    }
}

fn repeat(value: &Value, count: i128, meter: &Meter) -> Result<Value, Fault> {
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Value::List(elements) = value {
        let mut list = ListBuilder::new(meter);
        for _ in 0..if elements.len() == 0 { 0 } else { count } {
            for element in elements.walk(meter)? {
                list.push(element.clone())?;
            }
        }
        return list.finish(elements.form());
    }
    let mut text = TextBuilder::new(meter);
    text.repeat(value.as_text().unwrap_or_default(), count)?;
    text.finish()
}

fn compute(operation: Operation, a: Number, b: Number) -> Result<Number, Fault> {
    let (Number::Int(x), Number::Int(y)) = (a, b) else {
        return compute_floats(operation, a.as_float(), b.as_float()).map(Number::Float);
    };
    let whole = match operation {
        Operation::Add => x.checked_add(y),
        Operation::Subtract => x.checked_sub(y),
        Operation::Multiply => x.checked_mul(y),
        Operation::Divide => return compute_floats(operation, x as f64, y as f64).map(Number::Float),
        Operation::DivideWhole | Operation::Remainder if y == 0 => return Err(fault("a division by 0")),
        // Rounded down, as in Python.
        Operation::DivideWhole => {
            x.checked_div(y).map(|quotient| quotient - i128::from(x % y != 0 && (x < 0) != (y < 0)))
        }
        Operation::Remainder => {
            x.checked_rem(y).map(|rest| if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest })
        }
        Operation::Power if y < 0 => return compute_floats(operation, x as f64, y as f64).map(Number::Float),
        Operation::Power => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
    };
    whole.map(Number::Int).ok_or_else(|| fault("an integer has more than 128 bits"))
}

fn compute_floats(operation: Operation, x: f64, y: f64) -> Result<f64, Fault> {
    let is_division = matches!(operation, Operation::Divide | Operation::DivideWhole | Operation::Remainder);
    if is_division && y == 0.0 {
        return Err(fault("a division by 0"));
    }
    let remainder = |x: f64, y: f64| {
        let rest = x % y;
        if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
    };
    Ok(match operation {
        Operation::Add => x + y,
        Operation::Subtract => x - y,
        Operation::Multiply => x * y,
        Operation::Divide => x / y,
        Operation::DivideWhole => ((x - remainder(x, y)) / y).round(),
        Operation::Remainder => remainder(x, y),
        Operation::Power => x.powf(y),
    })
}

/// `-value`, or `+value`.
pub(super) fn signed(value: &Value, negative: Sign) -> Result<Value, Fault> {
    match (Number::of(value), negative) {
        (Some(number), Sign::Plus) => Ok(number.value()),
        (Some(Number::Int(number)), Sign::Minus) => {
            number.checked_neg().map(Value::Int).ok_or_else(|| fault("an integer has more than 128 bits"))
        }
        (Some(Number::Float(number)), Sign::Minus) => Ok(Value::Float(-number)),
        (None, Sign::Plus | Sign::Minus) => Err(fault(format!("a sign does not take {}", value.kind()))),
    }
}

/// A sign before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
}

/// A float as Python's `repr`: an exponent has a sign and two digits, and begins below 1e-4 and from 1e16 on.
pub(super) fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{value:?}")
}

/// The integer of a text, in `base`, with blanks around it and underscores in it, as Python reads it.
pub(super) fn parse_integer(text: &str, base: u32) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match (base, lower.get(..2)) {
        (16 | 0, Some("0x")) => (16, &lower[2..]),
        (8 | 0, Some("0o")) => (8, &lower[2..]),
        (2 | 0, Some("0b")) => (2, &lower[2..]),
        (0, _) => (10, &lower[..]),
        _ => (base, &lower[..]),
    };
    if !(2..=36).contains(&base)
        || digits.starts_with(['_', '+', '-'])
        || digits.ends_with('_')
        || digits.contains("__")
    {
        return None;
    }
    let value = i128::from_str_radix(&digits.replace('_', ""), base).ok()?;
    Some(if negative { -value } else { value })
}

/// The float of a text, as Python reads it.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit())
        || ["inf", "infinity", "nan"].contains(&text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str());
    if is_number { text.replace('_', "").parse().ok() } else { None }
}
