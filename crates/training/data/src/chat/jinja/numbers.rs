//! Numbers as Python computes and writes them. Integers have 128 bits; more are refused.

use super::value::Value;

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
