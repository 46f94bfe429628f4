//! Filters of texts. Other values are written as text first.

use super::super::arguments::{Given, count, is_set, text};
use super::super::dict::DictBuilder;
use super::super::meter::{Fault, fault};
use super::super::percent_format::percent_format;
use super::super::renderer::{Made, Renderer};
use super::super::strings::{lines, titled};
use super::super::text_methods as methods;
use super::super::value::{Form, ListBuilder, Value};
use super::super::writer::{TextBuilder, text_of};

/// The method `method` of `value` as text.
fn through(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    method: fn(&mut Renderer<'_>, &Value, Given) -> Made,
) -> Made {
    let own = text_of(value, renderer.meter)?;
    method(renderer, &own, given)
}

pub(super) fn trim(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    through(renderer, value, given, methods::trim)
}

pub(super) fn replace(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let mut given = given;
    for argument in given.positional.iter_mut().take(2) {
        *argument = text_of(argument, renderer.meter)?;
    }
    through(renderer, value, given, methods::replace)
}

pub(super) fn upper(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    through(renderer, value, given, methods::upper)
}

pub(super) fn lower(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    through(renderer, value, given, methods::lower)
}

pub(super) fn capitalize(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    through(renderer, value, given, methods::capitalize)
}

pub(super) fn split(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    through(renderer, value, given, methods::split)
}

pub(super) fn center(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [width] = given.bind("center", ["width"])?;
    through(renderer, value, Given::of(vec![width.unwrap_or(Value::Int(80))]), methods::center)
}

/// A word begins after a blank, a hyphen or an opening bracket.
pub(super) fn title(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("title", [])?;
    let own = text_of(value, renderer.meter)?;
    let own = text(&own, "title", renderer.meter)?;
    methods::made(renderer.meter, titled(own, |letter| letter.is_whitespace() || "-([{<".contains(letter)))
}

pub(super) fn string(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("string", [])?;
    text_of(value, renderer.meter)
}

pub(super) fn escape(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("escape", [])?;
    let own = text_of(value, renderer.meter)?;
    let mut escaped = TextBuilder::new(renderer.meter);
    for letter in text(&own, "escape", renderer.meter)?.chars() {
        match letter {
            '&' => escaped.push("&amp;")?,
            '<' => escaped.push("&lt;")?,
            '>' => escaped.push("&gt;")?,
            '\'' => escaped.push("&#39;")?,
            '"' => escaped.push("&#34;")?,
            _ => escaped.push_char(letter)?,
        }
    }
    escaped.finish()
}

pub(super) fn indent(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    let own = text_of(value, renderer.meter)?;
    let own = text(&own, "indent", renderer.meter)?;
    let width = width.unwrap_or(Value::Int(4));
    let (fill, times) = match width.as_text() {
        Some(fill) => (fill, 1),
        None => (" ", count(&width, "indent")?),
    };
    let mut indented = TextBuilder::new(renderer.meter);
    if is_set(&first) {
        indented.repeat(fill, times)?;
    }
    // A text that ends with the end of a line has one line more.
    let last = own.is_empty() || lines(own).last().is_some_and(|(_, end)| !end.is_empty());
    let all = lines(own).map(|(line, _)| line).chain(last.then_some(""));
    for (number, line) in all.enumerate() {
        indented.push(if number > 0 { "\n" } else { "" })?;
        if number > 0 && (is_set(&blank) || !line.is_empty()) {
            indented.repeat(fill, times)?;
        }
        indented.push(line)?;
    }
    indented.finish()
}

pub(super) fn truncate(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [length, killwords, end, leeway] = given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let own = text_of(value, renderer.meter)?;
    let own = text(&own, "truncate", renderer.meter)?;
    let end = end.unwrap_or_else(|| Value::text("..."));
    let end = text(&end, "truncate", renderer.meter)?;
    let length = length.map_or(Ok(255), |length| count(&length, "truncate"))?;
    let leeway = leeway.map_or(Ok(5), |leeway| count(&leeway, "truncate"))?;
    let kept =
        length.checked_sub(end.chars().count()).ok_or_else(|| fault("truncate needs a length of that of its end"))?;
    if own.chars().count() <= length.saturating_add(leeway) {
        return methods::made(renderer.meter, own);
    }
    let cut = &own[..own.char_indices().nth(kept).map_or(own.len(), |(at, _)| at)];
    let cut = if is_set(&killwords) { cut } else { cut.rsplit_once(' ').map_or(cut, |(words, _)| words) };
    methods::made(renderer.meter, format!("{cut}{end}"))
}

pub(super) fn wordcount(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("wordcount", [])?;
    let own = text_of(value, renderer.meter)?;
    let own = text(&own, "wordcount", renderer.meter)?;
    let words = own.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
    Ok(Value::Int(words.count() as i128))
}

/// `%` with the arguments by position, or with those by name.
pub(super) fn format(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let own = text_of(value, renderer.meter)?;
    let own = text(&own, "format", renderer.meter)?;
    if !given.positional.is_empty() && !given.named.is_empty() {
        return Err(fault("format takes arguments by position or by name, not both"));
    }
    let mut whole = DictBuilder::new(renderer.meter);
    for (name, value) in given.named {
        whole.set(Value::Text(name), value)?;
    }
    let whole = whole.finish()?;
    let mut values = ListBuilder::new(renderer.meter);
    for value in given.positional {
        values.push(value)?;
    }
    let values = values.finish_list(Form::Tuple)?;
    let whole = if values.len() > 0 { Value::List(values.clone()) } else { whole };
    percent_format(own, values.walk(renderer.meter)?, &whole, renderer.meter)
}

/// The text of an attribute's path.
pub(super) fn path(value: &Value, renderer: &Renderer<'_>) -> Result<String, Fault> {
    if let Value::Int(index) = value {
        return Ok(index.to_string());
    }
    Ok(text(value, "an attribute", renderer.meter)?.into())
}
