//! The tests of jinja2: `value is name`.

use super::super::arguments::{Given, integer, required, text};
use super::super::ast::Comparison;
use super::super::compare::same;
use super::super::meter::Fault;
use super::super::numbers::Number;
use super::super::operations::{Operation, operate};
use super::super::renderer::{Predicate, Renderer};
use super::super::value::Value;

const PREDICATES: [(&str, Predicate); 43] = [
    ("defined", |_, value, given| simple(given, !matches!(value, Value::Undefined))),
    ("undefined", |_, value, given| simple(given, matches!(value, Value::Undefined))),
    ("none", |_, value, given| simple(given, matches!(value, Value::None))),
    ("string", |_, value, given| simple(given, value.as_text().is_some())),
    ("mapping", |_, value, given| simple(given, value.as_dict().is_some())),
    ("iterable", |_, value, given| simple(given, has_elements(value))),
    ("sequence", |_, value, given| simple(given, has_elements(value))),
    ("number", |_, value, given| simple(given, Number::of(value).is_some())),
    ("integer", |_, value, given| simple(given, matches!(value, Value::Int(_)))),
    ("int", |_, value, given| simple(given, matches!(value, Value::Int(_)))),
    ("float", |_, value, given| simple(given, matches!(value, Value::Float(_)))),
    ("boolean", |_, value, given| simple(given, matches!(value, Value::Bool(_)))),
    ("true", |_, value, given| simple(given, matches!(value, Value::Bool(true)))),
    ("false", |_, value, given| simple(given, matches!(value, Value::Bool(false)))),
    ("callable", |_, value, given| simple(given, is_callable(value))),
    ("odd", |renderer, value, given| remainder(renderer, value, given, 1)),
    ("even", |renderer, value, given| remainder(renderer, value, given, 0)),
    ("divisibleby", divisibleby),
    ("sameas", sameas),
    ("escaped", |_, _, given| simple(given, false)),
    ("safe", |_, _, given| simple(given, false)),
    ("lower", |renderer, value, given| cased(renderer, value, given, char::is_lowercase, char::is_uppercase)),
    ("upper", |renderer, value, given| cased(renderer, value, given, char::is_uppercase, char::is_lowercase)),
    ("startingwith", |renderer, value, given| has_end(renderer, value, given, |text, part| text.starts_with(part))),
    ("endingwith", |renderer, value, given| has_end(renderer, value, given, |text, part| text.ends_with(part))),
    ("filter", |renderer, value, given| {
        Ok(simple(given, true)? && super::find(text(value, "filter", renderer.meter)?).is_some())
    }),
    ("test", |renderer, value, given| Ok(simple(given, true)? && find(text(value, "test", renderer.meter)?).is_some())),
    ("in", |renderer, value, given| compared(renderer, value, given, Comparison::In)),
    ("eq", |renderer, value, given| compared(renderer, value, given, Comparison::Equal)),
    ("equalto", |renderer, value, given| compared(renderer, value, given, Comparison::Equal)),
    ("==", |renderer, value, given| compared(renderer, value, given, Comparison::Equal)),
    ("ne", |renderer, value, given| compared(renderer, value, given, Comparison::NotEqual)),
    ("!=", |renderer, value, given| compared(renderer, value, given, Comparison::NotEqual)),
    ("lt", |renderer, value, given| compared(renderer, value, given, Comparison::Less)),
    ("lessthan", |renderer, value, given| compared(renderer, value, given, Comparison::Less)),
    ("<", |renderer, value, given| compared(renderer, value, given, Comparison::Less)),
    ("le", |renderer, value, given| compared(renderer, value, given, Comparison::LessOrEqual)),
    ("<=", |renderer, value, given| compared(renderer, value, given, Comparison::LessOrEqual)),
    ("gt", |renderer, value, given| compared(renderer, value, given, Comparison::Greater)),
    ("greaterthan", |renderer, value, given| compared(renderer, value, given, Comparison::Greater)),
    (">", |renderer, value, given| compared(renderer, value, given, Comparison::Greater)),
    ("ge", |renderer, value, given| compared(renderer, value, given, Comparison::GreaterOrEqual)),
    (">=", |renderer, value, given| compared(renderer, value, given, Comparison::GreaterOrEqual)),
];

/// The test `name`.
pub(in crate::chat::jinja) fn find(name: &str) -> Option<Predicate> {
    PREDICATES.iter().find(|(own, _)| *own == name).map(|(_, predicate)| *predicate)
}

/// A test without arguments.
fn simple(given: Given, passes: bool) -> Result<bool, Fault> {
    let [] = given.bind("the test", [])?;
    Ok(passes)
}

/// Whether Python iterates over a value.
fn has_elements(value: &Value) -> bool {
    matches!(value, Value::Undefined | Value::Text(_) | Value::List(_) | Value::Dict(_) | Value::Loop(_))
}

fn is_callable(value: &Value) -> bool {
    matches!(value, Value::Macro(_) | Value::Function(_) | Value::Method(_) | Value::Loop(_))
}

fn compared(renderer: &mut Renderer<'_>, value: &Value, given: Given, comparison: Comparison) -> Result<bool, Fault> {
    let [other] = given.bind("the test", ["other"])?;
    renderer.compare(comparison, value, &required(other, "the test", "a value")?)
}

fn remainder(renderer: &mut Renderer<'_>, value: &Value, given: Given, wanted: i128) -> Result<bool, Fault> {
    let [] = given.bind("the test", [])?;
    let rest = operate(Operation::Remainder, value, &Value::Int(2), renderer.meter)?;
    renderer.compare(Comparison::Equal, &rest, &Value::Int(wanted))
}

fn divisibleby(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<bool, Fault> {
    let [number] = given.bind("divisibleby", ["num"])?;
    let number = required(number, "divisibleby", "a number")?;
    let (value, number) = (integer(value, "divisibleby")?, integer(&number, "divisibleby")?);
    let rest = operate(Operation::Remainder, &Value::Int(value), &Value::Int(number), renderer.meter)?;
    Ok(!rest.is_true())
}

fn sameas(_: &mut Renderer<'_>, value: &Value, given: Given) -> Result<bool, Fault> {
    let [other] = given.bind("sameas", ["other"])?;
    Ok(same(value, &required(other, "sameas", "a value")?))
}

fn cased(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    wanted: fn(char) -> bool,
    other: fn(char) -> bool,
) -> Result<bool, Fault> {
    let [] = given.bind("the test", [])?;
    let own = text(value, "the test", renderer.meter)?;
    Ok(own.chars().any(wanted) && !own.chars().any(other))
}

fn has_end(
    renderer: &mut Renderer<'_>,
    value: &Value,
    given: Given,
    has: fn(&str, &str) -> bool,
) -> Result<bool, Fault> {
    let [part] = given.bind("the test", ["other"])?;
    let part = required(part, "the test", "a string")?;
    Ok(has(text(value, "the test", renderer.meter)?, text(&part, "the test", renderer.meter)?))
}
