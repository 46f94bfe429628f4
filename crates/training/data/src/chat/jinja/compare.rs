//! Values compared as Python does, which pays for every pair of elements.

use std::cmp::Ordering;
use std::sync::Arc;

use super::meter::{Fault, Meter, fault};
use super::numbers::Number;
use super::value::Value;

/// Whether `a == b`.
pub(super) fn equal(a: &Value, b: &Value, meter: &Meter) -> Result<bool, Fault> {
    meter.step(1)?;
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return Ok(order_of_numbers(a, b) == Some(Ordering::Equal));
    }
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            let is_equal = a.len() == b.len();
            meter.read(if is_equal { a.len() } else { 0 })?;
            Ok(is_equal && a == b)
        }
        (Value::List(a), Value::List(b)) => {
            if Arc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.form() != b.form() || a.len() != b.len() {
                return Ok(false);
            }
            for index in 0..a.len() {
                let (Some(a), Some(b)) = (a.get(index), b.get(index)) else { return Ok(false) };
                if !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if Arc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.walk(meter)? {
                match b.get(key, meter)? {
                    Some(other) if equal(value, other, meter)? => {}
                    Some(_) | None => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => Ok(same(a, b)),
    }
}

/// Whether `a is b`.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Undefined, Value::Undefined) | (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => Arc::ptr_eq(a, b),
        (Value::List(a), Value::List(b)) => Arc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Arc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b))
        | (Value::Macro(a), Value::Macro(b))
        | (Value::Loop(a), Value::Loop(b)) => a == b,
        (Value::Function(a), Value::Function(b)) => a == b,
        (Value::Method(a), Value::Method(b)) => a.1 == b.1 && same(&a.0, &b.0),
        _ => false,
    }
}

/// The order of `a` and `b`; nothing where one of them is not a number.
///
/// # Errors
/// Values that Python does not order.
pub(super) fn order(a: &Value, b: &Value, meter: &Meter) -> Result<Option<Ordering>, Fault> {
    meter.step(1)?;
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return Ok(order_of_numbers(a, b));
    }
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            meter.read(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        (Value::List(x), Value::List(y)) if x.form() == y.form() => {
            for index in 0..x.len().min(y.len()) {
                let (Some(a), Some(b)) = (x.get(index), y.get(index)) else { break };
                if !equal(a, b, meter)? {
                    return order(a, b, meter);
                }
            }
            Ok(Some(x.len().cmp(&y.len())))
        }
        _ => Err(fault(format!("{} and {} have no order", a.kind(), b.kind()))),
    }
}

fn order_of_numbers(a: Number, b: Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Number::Int(_), Number::Float(_))
        | (Number::Float(_), Number::Int(_))
        | (Number::Float(_), Number::Float(_)) => a.as_float().partial_cmp(&b.as_float()),
    }
}

/// Whether `element in whole`.
///
/// # Errors
/// A value that holds nothing.
pub(super) fn contains(whole: &Value, element: &Value, meter: &Meter) -> Result<bool, Fault> {
    match whole {
        Value::Text(text) => {
            let part = element.as_text().ok_or_else(|| fault(format!("a string holds no {}", bare(element))))?;
            meter.letters(text.len() + part.len())?;
            Ok(text.contains(part))
        }
        Value::List(list) => {
            for index in 0..list.len() {
                if let Some(own) = list.get(index)
                    && (same(own, element) || equal(own, element, meter)?)
                {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Dict(dict) => Ok(dict.get(element, meter)?.is_some()),
        Value::Undefined => Ok(false),
        Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Namespace(_)
        | Value::Macro(_)
        | Value::Loop(_)
        | Value::Function(_)
        | Value::Method(_) => {
            Err(fault(format!("{} holds nothing; `in` needs a string, a list or a dictionary", whole.kind())))
        }
    }
}

/// A kind without its article.
fn bare(value: &Value) -> &'static str {
    let kind = value.kind();
    kind.split_once(' ').map_or(kind, |(_, bare)| bare)
}

/// Elements in the order of their keys, which keeps that of equals: merged two by two, because keys may have no order.
///
/// # Errors
/// Keys that have no order.
pub(super) fn sorted(mut elements: Vec<(Value, Value)>, meter: &Meter) -> Result<Vec<(Value, Value)>, Fault> {
    meter.step(elements.len())?;
    if elements.len() < 2 {
        return Ok(elements);
    }
    let right = elements.split_off(elements.len() / 2);
    let mut left = sorted(elements, meter)?.into_iter().peekable();
    let mut right = sorted(right, meter)?.into_iter().peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
        let first = if order(b, a, meter)? == Some(Ordering::Less) { right.next() } else { left.next() };
        merged.extend(first);
    }
    merged.extend(left.chain(right));
    Ok(merged)
}
