//! The method `format` of strings: Python's formats with braces.

use super::arguments::{Given, text};
use super::format_spec::{Align, FIELD_STEPS, Spec, width, write};
use super::meter::{Fault, fault};
use super::renderer::Renderer;
use super::value::Value;
use super::writer::TextBuilder;

/// `value` with its fields replaced by the arguments.
pub(super) fn format(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let mut rest = text(value, "format", renderer.meter)?;
    let mut out = TextBuilder::new(renderer.meter);
    let mut automatic = 0;
    while let Some(at) = rest.find(['{', '}']) {
        out.push(&rest[..at])?;
        let brace = &rest[at..at + 1];
        rest = &rest[at + 1..];
        renderer.meter.step(FIELD_STEPS)?;
        if let Some(behind) = rest.strip_prefix(brace) {
            out.push(brace)?;
            rest = behind;
            continue;
        }
        let (field, behind) = match (brace, rest.split_once('}')) {
            ("{", Some(parts)) => parts,
            _ => return Err(fault(format!("format has a single `{brace}`; write it twice"))),
        };
        rest = behind;
        let (name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = match name.split_once('!') {
            Some((name, conversion)) => (name, Some(conversion)),
            None => (name, None),
        };
        let value = named_value(renderer, name, &given, &mut automatic)?;
        let value = converted(renderer, value, conversion)?;
        write(&mut out, &parsed(spec)?, &value)?;
    }
    out.push(rest)?;
    out.finish()
}

/// The argument that a field names, with attributes and items.
fn named_value(renderer: &mut Renderer<'_>, name: &str, given: &Given, automatic: &mut usize) -> Result<Value, Fault> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut path) = name.split_at(end);
    let missing = || fault(format!("format has no argument `{}`", first.chars().take(40).collect::<String>()));
    let mut value = if first.is_empty() {
        *automatic += 1;
        given.positional.get(*automatic - 1).cloned().ok_or_else(missing)?
    } else if let Ok(index) = first.parse::<usize>() {
        given.positional.get(index).cloned().ok_or_else(missing)?
    } else {
        renderer.meter.step(given.named.len())?;
        given.named.iter().find(|(own, _)| **own == *first).map(|(_, value)| value.clone()).ok_or_else(missing)?
    };
    while !path.is_empty() {
        let is_item = path.starts_with('[');
        if !is_item && !path.starts_with('.') {
            return Err(fault("format has a field with more after its item"));
        }
        let end = match is_item {
            true => path.find(']').ok_or_else(|| fault("format has an item without its end"))?,
            false => path[1..].find(['.', '[']).map_or(path.len(), |end| end + 1),
        };
        let part = &path[1..end];
        value = match (is_item, part.parse::<i128>()) {
            (true, Ok(index)) => renderer.item(&value, &Value::Int(index))?,
            (true, Err(_)) => renderer.item(&value, &Value::text(part))?,
            (false, _) => renderer.attribute(&value, part)?,
        };
        path = &path[(end + usize::from(is_item)).min(path.len())..];
    }
    Ok(value)
}

fn converted(renderer: &Renderer<'_>, value: Value, conversion: Option<&str>) -> Result<Value, Fault> {
    let mut text = TextBuilder::new(renderer.meter);
    match conversion {
        None => return Ok(value),
        Some("s") => text.print(&value)?,
        Some("r") => text.print_quoted(&value)?,
        Some(other) => {
            return Err(fault(format!("format has no conversion `!{}`", other.chars().take(40).collect::<String>())));
        }
    }
    text.finish()
}

fn align(letter: char) -> Option<Align> {
    match letter {
        '<' => Some(Align::Left),
        '>' => Some(Align::Right),
        '^' => Some(Align::Center),
        '=' => Some(Align::Inside),
        _ => None,
    }
}

/// The field after its colon.
fn parsed(text: &str) -> Result<Spec, Fault> {
    let (mut spec, mut rest) = (Spec::new(), text);
    let mut letters = rest.chars();
    match (letters.next(), letters.next()) {
        (Some(fill), Some(second)) if align(second).is_some() => {
            (spec.fill, spec.align) = (fill, align(second));
            rest = letters.as_str();
        }
        (Some(first), _) if align(first).is_some() => {
            spec.align = align(first);
            rest = &rest[1..];
        }
        (Some(_) | None, _) => {}
    }
    if let Some(plus) = rest.chars().next().filter(|letter| ['+', '-', ' '].contains(letter)) {
        spec.plus = Some(plus).filter(|plus| *plus != '-');
        rest = &rest[1..];
    }
    if let Some(behind) = rest.strip_prefix('#') {
        spec.has_prefix = true;
        rest = behind;
    }
    if rest.starts_with('0') && spec.align.is_none() {
        (spec.fill, spec.align) = ('0', Some(Align::Inside));
    }
    spec.width = width(&mut rest, "width")?.unwrap_or(0);
    if let Some(separator) = rest.chars().next().filter(|letter| [',', '_'].contains(letter)) {
        spec.separator = Some(separator);
        rest = &rest[1..];
    }
    if let Some(behind) = rest.strip_prefix('.') {
        rest = behind;
        let precision = width(&mut rest, "precision")?;
        spec.precision = Some(precision.ok_or_else(|| fault("a format has a precision without a number"))?);
    }
    let mut letters = rest.chars();
    spec.form = letters.next();
    match letters.next() {
        None => Ok(spec),
        Some(_) => Err(fault("a format has more than one form")),
    }
}
