//! The fields of `format` and `%`: one value with its width, its precision and its form.

use super::meter::{Fault, fault};
use super::numbers::{Number, float_text};
use super::value::Value;
use super::writer::{FLOAT_STEPS, TextBuilder};

/// Steps of a field, whatever it has.
pub(super) const FIELD_STEPS: usize = 4;

/// Most letters of a field that a width or a precision asks for.
const MOST_WIDTH: usize = 1000;

/// The side at which a field has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
    Center,
    /// Blanks between the sign and the digits.
    Inside,
}

/// A field.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) fill: char,
    pub(super) align: Option<Align>,
    /// `+` or a blank before a number that is not negative.
    pub(super) plus: Option<char>,
    /// `#`: the prefix of the base.
    pub(super) has_prefix: bool,
    /// `,` or `_` between groups of digits.
    pub(super) separator: Option<char>,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
    /// A letter, or nothing for the form of the value.
    pub(super) form: Option<char>,
}

impl Spec {
    pub(super) fn new() -> Spec {
        Spec {
            fill: ' ',
            align: None,
            plus: None,
            has_prefix: false,
            separator: None,
            width: 0,
            precision: None,
            form: None,
        }
    }
}

/// The number at the beginning of `text`, which is skipped; at most `MOST_WIDTH`.
///
/// # Errors
/// A larger number.
pub(super) fn width(text: &mut &str, what: &str) -> Result<Option<usize>, Fault> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    if number.is_empty() {
        return Ok(None);
    }
    let width = number.trim_start_matches('0');
    match if width.is_empty() { Ok(0) } else { width.parse() } {
        Ok(width) if width <= MOST_WIDTH => Ok(Some(width)),
        Ok(_) | Err(_) => {
            let number: String = number.chars().take(40).collect();
            Err(fault(format!("a format has the {what} {number}; at most {MOST_WIDTH} is written")))
        }
    }
}

/// Writes `value` as `spec` says.
pub(super) fn write(out: &mut TextBuilder<'_>, spec: &Spec, value: &Value) -> Result<(), Fault> {
    let wrong = |form: char| fault(format!("format `{form}` does not take {}", value.kind()));
    match (spec.form, Number::of(value)) {
        (None | Some('s'), None) | (Some('s'), Some(_)) => {
            let mut text = TextBuilder::new(out.meter());
            text.print(value)?;
            text_field(out, spec, text.as_str())
        }
        (None, Some(_)) if matches!(value, Value::Bool(_)) && spec.width == 0 => out.print(value),
        (None, Some(Number::Int(number))) => integer_field(out, spec, number, 'd'),
        (None, Some(Number::Float(number))) => float_field(out, spec, number, None),
        (Some('c'), Some(Number::Int(code))) => {
            let letter = u32::try_from(code)
                .ok()
                .and_then(char::from_u32)
                .ok_or_else(|| fault(format!("{code} is not a letter")))?;
            text_field(out, spec, letter.encode_utf8(&mut [0; 4]))
        }
        (Some(form @ ('d' | 'x' | 'X' | 'o' | 'b' | 'n')), Some(Number::Int(number))) => {
            integer_field(out, spec, number, form)
        }
        (Some(form @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')), Some(number)) => {
            float_field(out, spec, number.as_float(), Some(form))
        }
        (Some(form), _) => Err(wrong(form)),
    }
}

fn text_field(out: &mut TextBuilder<'_>, spec: &Spec, text: &str) -> Result<(), Fault> {
    let end = spec.precision.and_then(|most| text.char_indices().nth(most)).map_or(text.len(), |(end, _)| end);
    pad(out, spec, "", &text[..end], Align::Left)
}

/// Writes `sign` and `body` in a field.
fn pad(out: &mut TextBuilder<'_>, spec: &Spec, sign: &str, body: &str, default: Align) -> Result<(), Fault> {
    let missing = if spec.width == 0 { 0 } else { spec.width.saturating_sub(sign.len() + body.chars().count()) };
    let (before, inside) = match spec.align.unwrap_or(default) {
        Align::Left => (0, 0),
        Align::Right => (missing, 0),
        Align::Center => (missing / 2, 0),
        Align::Inside => (0, missing),
    };
    let mut buffer = [0; 4];
    let fill = spec.fill.encode_utf8(&mut buffer);
    out.repeat(fill, before)?;
    out.push(sign)?;
    out.repeat(fill, inside)?;
    out.push(body)?;
    out.repeat(fill, missing - before - inside)
}

fn sign(spec: &Spec, is_negative: bool) -> String {
    match (is_negative, spec.plus) {
        (true, _) => "-".into(),
        (false, Some(plus)) => plus.into(),
        (false, None) => String::new(),
    }
}

/// `digits` with a separator between groups of three.
fn grouped(digits: &str, separator: Option<char>) -> String {
    let Some(separator) = separator else { return digits.into() };
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped
}

fn integer_field(out: &mut TextBuilder<'_>, spec: &Spec, number: i128, form: char) -> Result<(), Fault> {
    let size = number.unsigned_abs();
    let (prefix, digits) = match form {
        'x' => ("0x", format!("{size:x}")),
        'X' => ("0X", format!("{size:X}")),
        'o' => ("0o", format!("{size:o}")),
        'b' => ("0b", format!("{size:b}")),
        _ => ("", grouped(&size.to_string(), spec.separator)),
    };
    let sign = sign(spec, number < 0) + if spec.has_prefix { prefix } else { "" };
    pad(out, spec, &sign, &digits, Align::Right)
}

fn float_field(out: &mut TextBuilder<'_>, spec: &Spec, number: f64, form: Option<char>) -> Result<(), Fault> {
    let sign = sign(spec, number.is_sign_negative() && !number.is_nan());
    let size = number.abs();
    let digits = spec.precision.unwrap_or(6);
    // Digits of a float are computed one by one, and each more slowly than the last.
    out.meter().step(FLOAT_STEPS + digits / 2)?;
    let body = if !size.is_finite() {
        if size.is_nan() { "nan".into() } else { "inf".into() }
    } else {
        match form {
            None if spec.precision.is_none() => float_text(size),
            None => general(size, digits, Zeros::Kept),
            Some('f' | 'F') => format!("{size:.digits$}"),
            Some('%') => format!("{:.digits$}%", size * 100.0),
            Some('e' | 'E') => exponent(size, digits),
            Some(_) => general(size, digits, Zeros::Dropped),
        }
    };
    let body = if matches!(form, Some('E' | 'G')) { body.to_uppercase() } else { body };
    let whole = body.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(body.len());
    let body = grouped(&body[..whole], spec.separator) + &body[whole..];
    pad(out, spec, &sign, &body, Align::Right)
}

/// As Python writes an exponent: with a sign and two digits.
fn exponent(size: f64, digits: usize) -> String {
    let text = format!("{size:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Whether a number that seems whole has `.0` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    Kept,
    Dropped,
}

/// `digits` significant digits, without zeros at the end, and with an exponent where it is long.
fn general(size: f64, digits: usize, zeros: Zeros) -> String {
    let digits = digits.max(1);
    let text = format!("{size:.*e}", digits - 1);
    let exponent_of = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    let most = digits as i32 - if zeros == Zeros::Kept { 1 } else { 0 };
    if exponent_of < -4 || exponent_of >= most.max(1) {
        let text = exponent(size, digits - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    let behind = usize::try_from(digits as i32 - 1 - exponent_of).unwrap_or_default();
    let text = trimmed(&format!("{size:.behind$}"));
    if zeros == Zeros::Kept && !text.contains('.') { text + ".0" } else { text }
}
