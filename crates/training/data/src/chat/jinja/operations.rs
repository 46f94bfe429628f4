//! Operations of one and of two values.

use super::meter::{Fault, Meter, fault};
use super::numbers::Number;
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
