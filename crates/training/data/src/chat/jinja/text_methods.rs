//! The methods of strings. Each reads its string, which is paid for.

use super::arguments::{Given, count, integer, is_set, required, text};
use super::meter::{Fault, Meter, fault};
use super::methods::MethodFunction;
use super::renderer::Renderer;
use super::strings::{capitalized, is_space, lines, titled};
use super::value::{Form, ListBuilder, Value};
use super::writer::TextBuilder;

type Made = Result<Value, Fault>;

pub(super) const TEXT: [(&str, MethodFunction); 46] = [
    ("strip", strip),
    ("split", split),
    ("startswith", startswith),
    ("endswith", endswith),
    ("replace", replace),
    ("lstrip", lstrip),
    ("rstrip", rstrip),
    ("lower", lower),
    ("upper", upper),
    ("title", title),
    ("capitalize", capitalize),
    ("join", join),
    ("format", super::brace_format::format),
    ("splitlines", splitlines),
    ("rsplit", rsplit),
    ("find", find),
    ("rfind", rfind),
    ("index", index),
    ("rindex", rindex),
    ("count", count_of),
    ("removeprefix", removeprefix),
    ("removesuffix", removesuffix),
    ("partition", partition),
    ("rpartition", rpartition),
    ("center", center),
    ("ljust", ljust),
    ("rjust", rjust),
    ("zfill", zfill),
    ("swapcase", swapcase),
    ("casefold", lower),
    ("expandtabs", expandtabs),
    ("isalnum", |renderer, value, given| all(renderer, value, given, "isalnum", char::is_alphanumeric)),
    ("isalpha", |renderer, value, given| all(renderer, value, given, "isalpha", char::is_alphabetic)),
    ("isdigit", |renderer, value, given| all(renderer, value, given, "isdigit", char::is_numeric)),
    ("isnumeric", |renderer, value, given| all(renderer, value, given, "isnumeric", char::is_numeric)),
    ("isdecimal", |renderer, value, given| all(renderer, value, given, "isdecimal", char::is_numeric)),
    ("isspace", |renderer, value, given| all(renderer, value, given, "isspace", is_space)),
    ("isascii", isascii),
    ("islower", |renderer, value, given| {
        cased(renderer, value, given, "islower", char::is_lowercase, char::is_uppercase)
    }),
    ("isupper", |renderer, value, given| {
        cased(renderer, value, given, "isupper", char::is_uppercase, char::is_lowercase)
    }),
    ("istitle", istitle),
    ("isidentifier", isidentifier),
    ("isprintable", |renderer, value, given| none(renderer, value, given, "isprintable", char::is_control)),
    ("translate", unknown),
    ("maketrans", unknown),
    ("encode", unknown),
];

fn unknown(_: &mut Renderer<'_>, _: &Value, _: Given) -> Made {
    Err(fault("translate, maketrans and encode cannot be called; use replace"))
}

/// A text that was made of texts which were paid for.
pub(super) fn made(meter: &Meter, text: impl AsRef<str>) -> Made {
    let mut made = TextBuilder::new(meter);
    made.push(text.as_ref())?;
    made.finish()
}

/// The string itself, which has no arguments.
fn alone<'v>(renderer: &Renderer<'_>, value: &'v Value, given: Given, name: &str) -> Result<&'v str, Fault> {
    let [] = given.bind(name, [])?;
    text(value, name, renderer.meter)
}

pub(super) fn upper(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    made(renderer.meter, alone(renderer, value, given, "upper")?.to_uppercase())
}

pub(super) fn lower(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    made(renderer.meter, alone(renderer, value, given, "lower")?.to_lowercase())
}

fn swapcase(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let text = alone(renderer, value, given, "swapcase")?;
    let mut swapped = TextBuilder::new(renderer.meter);
    for letter in text.chars() {
        if letter.is_uppercase() {
            letter.to_lowercase().try_for_each(|other| swapped.push_char(other))?;
        } else {
            letter.to_uppercase().try_for_each(|other| swapped.push_char(other))?;
        }
    }
    swapped.finish()
}

pub(super) fn capitalize(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    made(renderer.meter, capitalized(alone(renderer, value, given, "capitalize")?))
}

fn title(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let own = alone(renderer, value, given, "title")?;
    made(renderer.meter, titled(own, |letter| !letter.is_alphabetic()))
}

/// The side of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Both,
}

fn strip(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    stripped(renderer, value, given, Side::Both)
}

fn lstrip(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    stripped(renderer, value, given, Side::Left)
}

fn rstrip(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    stripped(renderer, value, given, Side::Right)
}

fn stripped(renderer: &mut Renderer<'_>, value: &Value, given: Given, side: Side) -> Made {
    let [letters] = given.bind("strip", ["chars"])?;
    let own = text(value, "strip", renderer.meter)?;
    let letters = letters.filter(|letters| !matches!(letters, Value::None));
    let letters = letters.as_ref().map(|letters| text(letters, "strip", renderer.meter)).transpose()?;
    // Each letter that is dropped is searched among all.
    renderer.meter.read(own.len().saturating_mul(letters.map_or(0, |letters| 4 * letters.len())))?;
    let is_dropped = |letter: char| letters.map_or(is_space(letter), |letters| letters.contains(letter));
    made(
        renderer.meter,
        match side {
            Side::Left => own.trim_start_matches(is_dropped),
            Side::Right => own.trim_end_matches(is_dropped),
            Side::Both => own.trim_matches(is_dropped),
        },
    )
}

pub(super) fn trim(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    stripped(renderer, value, given, Side::Both)
}

fn removeprefix(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    removed(renderer, value, given, "removeprefix", |text, part| text.strip_prefix(part))
}

fn removesuffix(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    removed(renderer, value, given, "removesuffix", |text, part| text.strip_suffix(part))
}

fn removed(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    name: &str,
    rest: for<'v> fn(&'v str, &str) -> Option<&'v str>,
) -> Made {
    let [part] = given.bind(name, ["part"])?;
    let (own, part) = (text(value, name, renderer.meter)?, required(part, name, "a string")?);
    made(renderer.meter, rest(own, text(&part, name, renderer.meter)?).unwrap_or(own))
}

pub(super) fn replace(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [old, new, most] = given.bind("replace", ["old", "new", "count"])?;
    let most = most.filter(|most| !matches!(most, Value::None));
    let most = most.map_or(Ok(-1), |most| integer(&most, "replace"))?;
    let (old, new) = (required(old, "replace", "a string")?, required(new, "replace", "a new string")?);
    let (own, old) = (text(value, "replace", renderer.meter)?, text(&old, "replace", renderer.meter)?);
    let new = text(&new, "replace", renderer.meter)?;
    let mut replaced = TextBuilder::new(renderer.meter);
    let mut from = 0;
    let most = if most < 0 { usize::MAX } else { usize::try_from(most).unwrap_or(usize::MAX) };
    for (at, found) in own.match_indices(old).take(most) {
        replaced.push(&own[from..at])?;
        replaced.push(new)?;
        from = at + found.len();
    }
    replaced.push(&own[from..])?;
    replaced.finish()
}

/// Whether `value` begins or ends with one of the arguments.
fn has_end(renderer: &mut Renderer<'_>, value: &Value, given: Given, name: &str, has: fn(&str, &str) -> bool) -> Made {
    let [part, start, stop] = given.bind(name, ["part", "start", "stop"])?;
    let part = required(part, name, "a string")?;
    let own = match (&start, &stop) {
        (None, None) => value.clone(),
        _ => renderer.slice(value, &[start, stop, None])?,
    };
    let own = text(&own, name, renderer.meter)?.to_string();
    if let Value::List(parts) = &part {
        for part in parts.walk(renderer.meter)? {
            if has(&own, text(part, name, renderer.meter)?) {
                return Ok(Value::Bool(true));
            }
        }
        return Ok(Value::Bool(false));
    }
    Ok(Value::Bool(has(&own, text(&part, name, renderer.meter)?)))
}

fn startswith(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    has_end(renderer, value, given, "startswith", |text, part| text.starts_with(part))
}

fn endswith(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    has_end(renderer, value, given, "endswith", |text, part| text.ends_with(part))
}

/// Adds a part of a text that was paid for.
fn add(list: &mut ListBuilder<'_>, meter: &Meter, part: &str) -> Result<(), Fault> {
    meter.step(1)?;
    meter.write(part.len())?;
    list.push(Value::text(part))
}

pub(super) fn split(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    split_from(renderer, value, given, Side::Left)
}

fn rsplit(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    split_from(renderer, value, given, Side::Right)
}

fn split_from(renderer: &mut Renderer<'_>, value: &Value, given: Given, side: Side) -> Made {
    let [separator, most] = given.bind("split", ["sep", "maxsplit"])?;
    let most = most.map_or(Ok(-1), |most| integer(&most, "split"))?;
    let most = if most < 0 { usize::MAX } else { usize::try_from(most).unwrap_or(usize::MAX) };
    let own = text(value, "split", renderer.meter)?;
    let separator = separator.filter(|separator| !matches!(separator, Value::None));
    let separator = separator.as_ref().map(|separator| text(separator, "split", renderer.meter)).transpose()?;
    let mut rest = match (separator, side) {
        (Some(_), _) => own,
        (None, Side::Right) => own.trim_end_matches(is_space),
        (None, Side::Left | Side::Both) => own.trim_start_matches(is_space),
    };
    if separator == Some("") {
        return Err(fault("the separator of split is empty"));
    }
    renderer.meter.step(1)?;
    let mut parts = vec![];
    while parts.len() < most {
        let found = match (separator, side) {
            (Some(separator), Side::Right) => rest.rfind(separator).map(|at| (at, separator.len())),
            (Some(separator), Side::Left | Side::Both) => rest.find(separator).map(|at| (at, separator.len())),
            (None, Side::Right) => rest.rfind(is_space).map(|at| {
                let start = rest[..at].trim_end_matches(is_space).len();
                (start, rest[at..].chars().next().map_or(0, char::len_utf8) + at - start)
            }),
            (None, Side::Left | Side::Both) => {
                rest.find(is_space).map(|at| (at, rest.len() - at - rest[at..].trim_start_matches(is_space).len()))
            }
        };
        let Some((at, len)) = found else { break };
        renderer.meter.step(1)?;
        match side {
            Side::Right => {
                parts.push(&rest[at + len..]);
                rest = &rest[..at];
            }
            Side::Left | Side::Both => {
                parts.push(&rest[..at]);
                rest = &rest[at + len..];
            }
        }
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    if side == Side::Right {
        parts.reverse();
    }
    let mut list = ListBuilder::new(renderer.meter);
    for part in parts {
        add(&mut list, renderer.meter, part)?;
    }
    list.finish(Form::List)
}

fn splitlines(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [keeps] = given.bind("splitlines", ["keepends"])?;
    let own = text(value, "splitlines", renderer.meter)?;
    let mut list = ListBuilder::new(renderer.meter);
    for (line, end) in lines(own) {
        let end = if is_set(&keeps) { end } else { "" };
        add(&mut list, renderer.meter, &format!("{line}{end}"))?;
    }
    list.finish(Form::List)
}

fn partition(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    partitioned(renderer, value, given, Side::Left)
}

fn rpartition(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    partitioned(renderer, value, given, Side::Right)
}

fn partitioned(renderer: &mut Renderer<'_>, value: &Value, given: Given, side: Side) -> Made {
    let [separator] = given.bind("partition", ["sep"])?;
    let separator = required(separator, "partition", "a separator")?;
    let (own, separator) = (text(value, "partition", renderer.meter)?, text(&separator, "partition", renderer.meter)?);
    let found = if side == Side::Right { own.rfind(separator) } else { own.find(separator) };
    let parts = match (found, side) {
        (Some(at), _) => [&own[..at], separator, &own[at + separator.len()..]],
        (None, Side::Right) => ["", "", own],
        (None, Side::Left | Side::Both) => [own, "", ""],
    };
    let mut list = ListBuilder::new(renderer.meter);
    for part in parts {
        add(&mut list, renderer.meter, part)?;
    }
    list.finish(Form::Tuple)
}

fn join(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [parts] = given.bind("join", ["iterable"])?;
    let own = text(value, "join", renderer.meter)?;
    let mut joined = TextBuilder::new(renderer.meter);
    for (place, part) in
        renderer.elements(&required(parts, "join", "a list")?)?.walk(renderer.meter)?.iter().enumerate()
    {
        joined.push(if place > 0 { own } else { "" })?;
        joined.push(text(part, "join", renderer.meter)?)?;
    }
    joined.finish()
}

/// The place of the argument in letters, by `search`.
fn place_of(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    name: &str,
    search: fn(&str, &str) -> Option<usize>,
) -> Result<i128, Fault> {
    let [part, start, stop] = given.bind(name, ["sub", "start", "stop"])?;
    let part = required(part, name, "a string")?;
    let skipped = start.as_ref().map_or(Ok(0), |start| integer(start, name))?;
    let own = match (&start, &stop) {
        (None, None) => value.clone(),
        _ if skipped < 0 => return Err(fault(format!("{name} needs a start of 0 or more"))),
        _ => renderer.slice(value, &[start, stop, None])?,
    };
    let (own, part) = (text(&own, name, renderer.meter)?, text(&part, name, renderer.meter)?);
    Ok(search(own, part).map_or(-1, |at| own[..at].chars().count() as i128 + skipped))
}

fn find(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    place_of(renderer, value, given, "find", |text, part| text.find(part)).map(Value::Int)
}

fn rfind(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    place_of(renderer, value, given, "rfind", |text, part| text.rfind(part)).map(Value::Int)
}

fn index(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    found(place_of(renderer, value, given, "index", |text, part| text.find(part))?)
}

fn rindex(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    found(place_of(renderer, value, given, "rindex", |text, part| text.rfind(part))?)
}

fn found(place: i128) -> Made {
    if place < 0 { Err(fault("index: the string does not have the part")) } else { Ok(Value::Int(place)) }
}

fn count_of(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [part] = given.bind("count", ["sub"])?;
    let part = required(part, "count", "a string")?;
    let (own, part) = (text(value, "count", renderer.meter)?, text(&part, "count", renderer.meter)?);
    Ok(Value::Int(own.matches(part).count() as i128))
}

/// The string with `fill` at its sides, `width` letters wide.
fn filled(renderer: &mut Renderer<'_>, value: &Value, given: Given, name: &str, side: Side) -> Made {
    let [width, fill] = given.bind(name, ["width", "fillchar"])?;
    let width = count(&required(width, name, "a width")?, name)?;
    let fill = fill.unwrap_or_else(|| Value::text(" "));
    let (own, fill) = (text(value, name, renderer.meter)?, text(&fill, name, renderer.meter)?);
    if fill.chars().count() != 1 {
        return Err(fault(format!("{name} needs a fill of one letter")));
    }
    let len = own.chars().count();
    let missing = width.saturating_sub(len);
    let left = match side {
        Side::Left => 0,
        Side::Right => missing,
        // As CPython: the left side has the rest where the width is odd.
        Side::Both => missing / 2 + (missing & width & 1),
    };
    let mut filled = TextBuilder::new(renderer.meter);
    filled.repeat(fill, left)?;
    filled.push(own)?;
    filled.repeat(fill, missing - left)?;
    filled.finish()
}

pub(super) fn center(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    filled(renderer, value, given, "center", Side::Both)
}

fn ljust(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    filled(renderer, value, given, "ljust", Side::Left)
}

fn rjust(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    filled(renderer, value, given, "rjust", Side::Right)
}

fn zfill(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [width] = given.bind("zfill", ["width"])?;
    let width = count(&required(width, "zfill", "a width")?, "zfill")?;
    let own = text(value, "zfill", renderer.meter)?;
    let (sign, digits) = own.split_at(usize::from(own.starts_with(['-', '+'])));
    let mut filled = TextBuilder::new(renderer.meter);
    filled.push(sign)?;
    filled.repeat("0", width.saturating_sub(own.chars().count()))?;
    filled.push(digits)?;
    filled.finish()
}

fn expandtabs(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [width] = given.bind("expandtabs", ["tabsize"])?;
    let width = width.map_or(Ok(8), |width| count(&width, "expandtabs"))?;
    let own = text(value, "expandtabs", renderer.meter)?;
    let (mut expanded, mut column) = (TextBuilder::new(renderer.meter), 0_usize);
    for letter in own.chars() {
        match letter {
            '\t' if width > 0 => {
                let blanks = width - column % width;
                expanded.repeat(" ", blanks)?;
                column += blanks;
            }
            '\t' => {}
            _ => {
                expanded.push_char(letter)?;
                column = if matches!(letter, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    expanded.finish()
}

/// Whether there are letters, and `is_it` holds for all.
fn all(renderer: &mut Renderer<'_>, value: &Value, given: Given, name: &str, is_it: fn(char) -> bool) -> Made {
    let own = alone(renderer, value, given, name)?;
    Ok(Value::Bool(!own.is_empty() && own.chars().all(is_it)))
}

/// Whether `is_it` holds for no letter.
fn none(renderer: &mut Renderer<'_>, value: &Value, given: Given, name: &str, is_it: fn(char) -> bool) -> Made {
    Ok(Value::Bool(!alone(renderer, value, given, name)?.chars().any(is_it)))
}

fn isascii(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    Ok(Value::Bool(alone(renderer, value, given, "isascii")?.is_ascii()))
}

/// Whether some letters are of one case and none of the other.
fn cased(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    name: &str,
    wanted: fn(char) -> bool,
    other: fn(char) -> bool,
) -> Made {
    let own = alone(renderer, value, given, name)?;
    Ok(Value::Bool(own.chars().any(wanted) && !own.chars().any(other)))
}

fn istitle(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let own = alone(renderer, value, given, "istitle")?;
    Ok(Value::Bool(own.chars().any(char::is_alphabetic) && titled(own, |letter| !letter.is_alphabetic()) == own))
}

fn isidentifier(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let own = alone(renderer, value, given, "isidentifier")?;
    let begins = own.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    Ok(Value::Bool(begins && own.chars().all(|letter| letter.is_alphanumeric() || letter == '_')))
}
