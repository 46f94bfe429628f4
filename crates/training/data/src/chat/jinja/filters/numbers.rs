//! Filters of numbers.

use super::super::arguments::{Given, integer};
use super::super::meter::fault;
use super::super::numbers::{Number, parse_float, parse_integer};
use super::super::operations::{Sign, signed};
use super::super::renderer::{Made, Renderer};
use super::super::value::Value;
use super::super::writer::FLOAT_STEPS;

pub(super) fn int(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [default, base] = given.bind("int", ["default", "base"])?;
    let base = base.map_or(Ok(10), |base| integer(&base, "int"))?;
    let base = u32::try_from(base).unwrap_or(1);
    let found = match (value, Number::of(value)) {
        (_, Some(Number::Int(number))) => Some(number),
        (_, Some(Number::Float(number))) => number.is_finite().then_some(number as i128),
        (Value::Text(text), None) => {
            renderer.meter.letters(text.len())?;
            parse_integer(text, base)
                .or_else(|| parse_float(text).filter(|number| number.is_finite()).map(|number| number as i128))
        }
        (_, None) => None,
    };
    Ok(found.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
}

pub(super) fn float(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [default] = given.bind("float", ["default"])?;
    let found = match (value, Number::of(value)) {
        (_, Some(number)) => Some(number.as_float()),
        (Value::Text(text), None) => {
            renderer.meter.letters(text.len())?;
            parse_float(text)
        }
        (_, None) => None,
    };
    Ok(found.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
}

pub(super) fn abs(_: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("abs", [])?;
    match Number::of(value) {
        Some(Number::Int(number)) if number < 0 => signed(value, Sign::Minus),
        Some(Number::Float(number)) => Ok(Value::Float(number.abs())),
        Some(number @ Number::Int(_)) => Ok(number.value()),
        None => Err(fault(format!("abs needs a number; got {}", value.kind()))),
    }
}

/// Most digits after the point that `round` keeps, and more than a float has.
const MOST_DIGITS: i128 = 400;

pub(super) fn round(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [precision, method] = given.bind("round", ["precision", "method"])?;
    let number = Number::of(value).ok_or_else(|| fault(format!("round needs a number; got {}", value.kind())))?;
    let precision = precision.map_or(Ok(0), |precision| integer(&precision, "round"))?.clamp(-MOST_DIGITS, MOST_DIGITS);
    let (number, digits) = (number.as_float(), i32::try_from(precision).unwrap_or_default());
    renderer.meter.step(FLOAT_STEPS + digits.unsigned_abs() as usize)?;
    let scale = 10_f64.powi(digits);
    let rounded = match method.as_ref().map_or(Some("common"), Value::as_text) {
        Some("ceil") => (number * scale).ceil() / scale,
        Some("floor") => (number * scale).floor() / scale,
        // To the nearest decimal number, and to the even one between two, as Python does.
        Some("common") if digits >= 0 => {
            format!("{number:.*}", digits.unsigned_abs() as usize).parse().unwrap_or(number)
        }
        Some("common") => (number * scale).round_ties_even() / scale,
        Some(_) | None => return Err(fault("the method of round must be common, ceil or floor")),
    };
    Ok(Value::Float(rounded))
}
