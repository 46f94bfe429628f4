//! `%`, and the filter `format`: Python's formats with percent signs.

use super::format_spec::{Align, FIELD_STEPS, Spec, width, write};
use super::meter::{Fault, Meter, fault};
use super::numbers::Number;
use super::value::Value;
use super::writer::TextBuilder;

/// `pattern` with its fields: each takes the next of `values`, or the item of `whole` that it names.
pub(super) fn percent_format(pattern: &str, values: &[Value], whole: &Value, meter: &Meter) -> Result<Value, Fault> {
    meter.read(pattern.len())?;
    let mut out = TextBuilder::new(meter);
    let mut values = values.iter();
    let (mut rest, mut is_named) = (pattern, false);
    while let Some(at) = rest.find('%') {
        out.push(&rest[..at])?;
        rest = &rest[at + 1..];
        meter.step(FIELD_STEPS)?;
        if let Some(behind) = rest.strip_prefix('%') {
            out.push("%")?;
            rest = behind;
            continue;
        }
        let named = match rest.strip_prefix('(') {
            Some(behind) => {
                let (name, behind) =
                    behind.split_once(')').ok_or_else(|| fault("a format has a name without its end"))?;
                rest = behind;
                is_named = true;
                let dict = whole.as_dict().ok_or_else(|| fault("a format with names needs a dictionary"))?;
                Some(dict.get_text(name).ok_or_else(|| fault(format!("a format has no value `{name}`")))?)
            }
            None => None,
        };
        let spec = spec(&mut rest)?;
        let value = match named {
            Some(value) => value,
            None => values.next().ok_or_else(|| fault("a format has more fields than values"))?,
        };
        field(&mut out, spec, value)?;
    }
    out.push(rest)?;
    if values.next().is_some() && !is_named && whole.as_dict().is_none() {
        return Err(fault("a format has more values than fields"));
    }
    out.finish()
}

/// The field at the beginning of `rest`, after its `%`.
fn spec(rest: &mut &str) -> Result<Spec, Fault> {
    let mut spec = Spec::new();
    let mut has_zeros = false;
    while let Some(flag) = rest.chars().next() {
        match flag {
            '-' => spec.align = Some(Align::Left),
            '+' => spec.plus = Some('+'),
            ' ' => spec.plus = spec.plus.or(Some(' ')),
            '#' => spec.has_prefix = true,
            '0' => has_zeros = true,
            _ => break,
        }
        *rest = &rest[1..];
    }
    spec.width = width(rest, "width")?.unwrap_or(0);
    if let Some(behind) = rest.strip_prefix('.') {
        *rest = behind;
        spec.precision = Some(width(rest, "precision")?.unwrap_or(0));
    }
    let form = rest.chars().next().ok_or_else(|| fault("a format ends within a field"))?;
    *rest = &rest[form.len_utf8()..];
    spec.form = Some(form);
    if has_zeros && spec.align.is_none() {
        (spec.fill, spec.align) = ('0', Some(Align::Inside));
    }
    Ok(spec)
}

fn field(out: &mut TextBuilder<'_>, mut spec: Spec, value: &Value) -> Result<(), Fault> {
    match spec.form {
        Some('s' | 'r' | 'a') => {
            let mut text = TextBuilder::new(out.meter());
            if spec.form == Some('s') {
                text.print(value)?
            } else {
                text.print_quoted(value)?
            }
            (spec.form, spec.fill) = (Some('s'), ' ');
            spec.align = spec.align.filter(|align| *align == Align::Left).or(Some(Align::Right));
            let text = text.finish()?;
            write(out, &spec, &text)
        }
        Some('d' | 'i' | 'u') => match Number::of(value) {
            Some(number) => {
                spec.form = Some('d');
                let whole = match number {
                    Number::Int(number) => number,
                    Number::Float(number) => number as i128,
                };
                write(out, &spec, &Value::Int(whole))
            }
            None => Err(fault(format!("format `%d` does not take {}", value.kind()))),
        },
        Some('c') if value.as_text().is_some_and(|text| text.chars().count() == 1) => {
            spec.form = Some('s');
            write(out, &spec, value)
        }
        Some('x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'c') => write(out, &spec, value),
        Some(form) => Err(fault(format!("there is no format `%{form}`"))),
        None => Err(fault("a format ends within a field")),
    }
}
