//! Filters of lists.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::arguments::{Given, count, is_set, required, text};
use super::super::compare::{equal, order, sorted};
use super::super::meter::{Fault, fault};
use super::super::operations::{Operation, operate};
use super::super::renderer::{Made, Renderer};
use super::super::text_methods::lower;
use super::super::value::{Form, List, ListBuilder, Value};
use super::super::writer::TextBuilder;
use super::{predicates, texts};

/// The path to a part of an element, such as `function.name` or `0`.
fn part(renderer: &mut Renderer<'_>, element: &Value, path: &Option<String>) -> Made {
    let Some(path) = path else { return Ok(element.clone()) };
    let mut value = element.clone();
    for name in path.split('.') {
        renderer.meter.step(1)?;
        renderer.meter.read(name.len())?;
        value = match (name.parse(), value) {
            (_, Value::Undefined) => Value::Undefined,
            (Ok(index), value) => renderer.item(&value, &Value::Int(index))?,
            (Err(_), value) => renderer.item(&value, &Value::text(name))?,
        };
    }
    Ok(value)
}

fn path(renderer: &Renderer<'_>, attribute: &Option<Value>) -> Result<Option<String>, Fault> {
    attribute
        .as_ref()
        .filter(|value| !matches!(value, Value::None))
        .map(|value| texts::path(value, renderer))
        .transpose()
}

/// A value as it is ordered: small letters where the case does not count.
fn ordered(renderer: &mut Renderer<'_>, value: Value, case_sensitive: &Option<Value>) -> Made {
    match value.as_text().is_some() && !is_set(case_sensitive) {
        true => lower(renderer, &value, Given::default()),
        false => Ok(value),
    }
}

pub(super) fn list(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("list", [])?;
    let elements = renderer.elements(value)?;
    match elements.form() {
        Form::List => Ok(Value::List(elements)),
        Form::Tuple => with(renderer, elements.walk(renderer.meter)?.iter().cloned()),
    }
}

/// A list of `elements`.
fn with(renderer: &Renderer<'_>, elements: impl IntoIterator<Item = Value>) -> Made {
    let mut list = ListBuilder::new(renderer.meter);
    for element in elements {
        list.push(element)?;
    }
    list.finish(Form::List)
}

pub(super) fn join(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [separator, attribute] = given.bind("join", ["d", "attribute"])?;
    let path = path(renderer, &attribute)?;
    let separator = separator.unwrap_or_else(|| Value::text(""));
    let mut joined = TextBuilder::new(renderer.meter);
    for (place, element) in renderer.elements(value)?.walk(renderer.meter)?.iter().enumerate() {
        if place > 0 {
            joined.print(&separator)?;
        }
        let element = part(renderer, element, &path)?;
        joined.print(&element)?;
    }
    joined.finish()
}

pub(super) fn first(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("first", [])?;
    Ok(renderer.elements(value)?.get(0).cloned().unwrap_or(Value::Undefined))
}

pub(super) fn last(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("last", [])?;
    let elements = renderer.elements(value)?;
    Ok(elements.len().checked_sub(1).and_then(|last| elements.get(last).cloned()).unwrap_or(Value::Undefined))
}

pub(super) fn reverse(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("reverse", [])?;
    if let Value::Text(_) = value {
        return renderer.slice(value, &[None, None, Some(Value::Int(-1))]);
    }
    with(renderer, renderer.elements(value)?.walk(renderer.meter)?.iter().rev().cloned())
}

pub(super) fn map(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let elements = renderer.elements(value)?;
    let mut mapped = ListBuilder::new(renderer.meter);
    if given.positional.is_empty() {
        let [attribute, default] = given.bind("map", ["attribute", "default"])?;
        let path = path(renderer, &Some(required(attribute, "map", "a filter or an attribute")?))?;
        for element in elements.walk(renderer.meter)? {
            mapped.push(match (part(renderer, element, &path)?, &default) {
                (Value::Undefined, Some(default)) => default.clone(),
                (value, _) => value,
            })?;
        }
        return mapped.finish(Form::List);
    }
    let (name, given) = given.split_first();
    let name = required(name, "map", "a filter")?;
    let name = text(&name, "map", renderer.meter)?;
    let filter = super::find(name).ok_or_else(|| fault(format!("there is no filter `{name}`")))?;
    for element in elements.walk(renderer.meter)? {
        renderer.meter.step(given.positional.len() + given.named.len())?;
        mapped.push(renderer.deeper(|renderer| filter(renderer, element, given.clone()))?)?;
    }
    mapped.finish(Form::List)
}

pub(super) fn select(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    selected(renderer, value, None, given, Keep::Passing)
}

pub(super) fn reject(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    selected(renderer, value, None, given, Keep::Others)
}

pub(super) fn selectattr(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    by_attribute(renderer, value, given, Keep::Passing)
}

pub(super) fn rejectattr(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    by_attribute(renderer, value, given, Keep::Others)
}

/// The elements that a filter keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Those that pass its test.
    Passing,
    Others,
}

fn by_attribute(renderer: &mut Renderer<'_>, value: &Value, given: Given, keep: Keep) -> Made {
    let (attribute, given) = given.split_first();
    let path = path(renderer, &Some(required(attribute, "selectattr", "an attribute")?))?;
    selected(renderer, value, path, given, keep)
}

/// The elements that `keep` keeps: their part at `path` passes the test that comes first in `given`, or is true.
fn selected(renderer: &mut Renderer<'_>, value: &Value, path: Option<String>, given: Given, keep: Keep) -> Made {
    let (name, given) = given.split_first();
    let test = match &name {
        Some(name) => {
            let name = text(name, "select", renderer.meter)?;
            Some(predicates::find(name).ok_or_else(|| fault(format!("there is no test `{name}`")))?)
        }
        None => None,
    };
    let mut chosen = ListBuilder::new(renderer.meter);
    for element in renderer.elements(value)?.walk(renderer.meter)? {
        let part = part(renderer, element, &path)?;
        renderer.meter.step(given.positional.len() + given.named.len())?;
        let passes = match test {
            Some(test) => test(renderer, &part, given.clone())?,
            None => part.is_true(),
        };
        if passes == (keep == Keep::Passing) {
            chosen.push(element.clone())?;
        }
    }
    chosen.finish(Form::List)
}

/// Elements with the keys by which they are ordered: parts at the paths of `attribute`, between commas.
fn keyed(
    renderer: &mut Renderer<'_>,
    elements: &List,
    attribute: &Option<Value>,
    case_sensitive: &Option<Value>,
) -> Result<Vec<(Value, Value)>, Fault> {
    let mut paths = vec![];
    match path(renderer, attribute)? {
        Some(all) => {
            for path in all.split(',') {
                renderer.meter.step(1)?;
                paths.push(Some(path.to_string()));
            }
        }
        None => paths.push(None),
    }
    let mut all = vec![];
    for element in elements.walk(renderer.meter)? {
        let mut key = ListBuilder::new(renderer.meter);
        for path in &paths {
            let part = part(renderer, element, path)?;
            key.push(ordered(renderer, part, case_sensitive)?)?;
        }
        all.push((key.finish(Form::Tuple)?, element.clone()));
    }
    Ok(all)
}

pub(super) fn sort(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [reverse, case_sensitive, attribute] = given.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let elements = renderer.elements(value)?;
    let mut all = keyed(renderer, &elements, &attribute, &case_sensitive)?;
    // Python keeps the order of equals also where it reverses.
    if is_set(&reverse) {
        all.reverse();
    }
    let mut all = sorted(all, renderer.meter)?;
    if is_set(&reverse) {
        all.reverse();
    }
    with(renderer, all.into_iter().map(|(_, element)| element))
}

pub(super) fn dictsort(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [case_sensitive, by, reverse] = given.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let index = match by.as_ref().map_or(Some("key"), Value::as_text) {
        Some("key") => 0,
        Some("value") => 1,
        Some(_) | None => return Err(fault("dictsort must be by key or by value")),
    };
    let pairs = super::items(renderer, value, Given::default())?;
    let named = [("reverse", reverse), ("case_sensitive", case_sensitive), ("attribute", Some(Value::Int(index)))];
    let named = named.into_iter().filter_map(|(name, value)| Some((Arc::from(name), value?))).collect();
    sort(renderer, &pairs, Given { positional: vec![], named })
}

pub(super) fn unique(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [case_sensitive, attribute] = given.bind("unique", ["case_sensitive", "attribute"])?;
    let path = path(renderer, &attribute)?;
    let mut seen = super::super::dict::Seen::default();
    let mut list = ListBuilder::new(renderer.meter);
    for element in renderer.elements(value)?.walk(renderer.meter)? {
        let part = part(renderer, element, &path)?;
        let key = ordered(renderer, part, &case_sensitive)?;
        if seen.is_new(&key, renderer.meter)? {
            list.push(element.clone())?;
        }
    }
    list.finish(Form::List)
}

pub(super) fn groupby(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [attribute, default, case_sensitive] = given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let attribute = required(attribute, "groupby", "an attribute")?;
    let elements = renderer.elements(value)?;
    let path = path(renderer, &Some(attribute))?;
    let mut all = vec![];
    for element in elements.walk(renderer.meter)? {
        let part = match (part(renderer, element, &path)?, &default) {
            (Value::Undefined, Some(default)) => default.clone(),
            (part, _) => part,
        };
        let key = ordered(renderer, part.clone(), &case_sensitive)?;
        let mut both = ListBuilder::new(renderer.meter);
        both.push(part)?;
        both.push(element.clone())?;
        all.push((key, both.finish(Form::Tuple)?));
    }
    let mut groups = ListBuilder::new(renderer.meter);
    let mut group: Option<(Value, Value, ListBuilder<'_>)> = None;
    for (key, both) in sorted(all, renderer.meter)? {
        let both = renderer.elements(&both)?;
        let [part, element] = both.walk(renderer.meter)? else { continue };
        if let Some((own, _, list)) = &mut group
            && equal(own, &key, renderer.meter)?
        {
            list.push(element.clone())?;
            continue;
        }
        if let Some((_, part, list)) = group.take() {
            groups.push(pair(renderer, part, list)?)?;
        }
        let mut list = ListBuilder::new(renderer.meter);
        list.push(element.clone())?;
        group = Some((key, part.clone(), list));
    }
    if let Some((_, part, list)) = group {
        groups.push(pair(renderer, part, list)?)?;
    }
    groups.finish(Form::List)
}

fn pair(renderer: &Renderer<'_>, part: Value, list: ListBuilder<'_>) -> Made {
    let mut pair = ListBuilder::new(renderer.meter);
    pair.push(part)?;
    pair.push(list.finish(Form::List)?)?;
    pair.finish(Form::Tuple)
}

pub(super) fn min(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    extreme(renderer, value, given, Ordering::Less)
}

pub(super) fn max(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    extreme(renderer, value, given, Ordering::Greater)
}

/// The first element that is `wanted` of all others.
fn extreme(renderer: &mut Renderer<'_>, value: &Value, given: Given, wanted: Ordering) -> Made {
    let [case_sensitive, attribute] = given.bind("min", ["case_sensitive", "attribute"])?;
    let elements = renderer.elements(value)?;
    let mut best: Option<(Value, Value)> = None;
    for (key, element) in keyed(renderer, &elements, &attribute, &case_sensitive)? {
        let is_better = match &best {
            Some((own, _)) => order(&key, own, renderer.meter)? == Some(wanted),
            None => true,
        };
        if is_better {
            best = Some((key, element));
        }
    }
    Ok(best.map_or(Value::Undefined, |(_, element)| element))
}

pub(super) fn sum(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [attribute, start] = given.bind("sum", ["attribute", "start"])?;
    let path = path(renderer, &attribute)?;
    let mut sum = start.unwrap_or(Value::Int(0));
    for element in renderer.elements(value)?.walk(renderer.meter)? {
        let part = part(renderer, element, &path)?;
        sum = operate(Operation::Add, &sum, &part, renderer.meter)?;
    }
    Ok(sum)
}

pub(super) fn batch(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [size, fill] = given.bind("batch", ["linecount", "fill_with"])?;
    let size = count(&required(size, "batch", "a size")?, "batch")?;
    if size == 0 {
        return Err(fault("the size of batch is 0"));
    }
    let mut batches = ListBuilder::new(renderer.meter);
    for elements in renderer.elements(value)?.walk(renderer.meter)?.chunks(size) {
        let mut list = ListBuilder::new(renderer.meter);
        for element in elements {
            list.push(element.clone())?;
        }
        if let Some(fill) = &fill {
            for _ in elements.len()..size {
                list.push(fill.clone())?;
            }
        }
        batches.push(list.finish(Form::List)?)?;
    }
    batches.finish(Form::List)
}

pub(super) fn slice(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [slices, fill] = given.bind("slice", ["slices", "fill_with"])?;
    let slices = count(&required(slices, "slice", "a count")?, "slice")?;
    if slices == 0 {
        return Err(fault("the count of slice is 0"));
    }
    let elements = renderer.elements(value)?;
    let all = elements.walk(renderer.meter)?;
    let (each, longer) = (all.len() / slices, all.len() % slices);
    let mut rest = all;
    let mut parts = ListBuilder::new(renderer.meter);
    for number in 0..slices {
        let (own, behind) = rest.split_at(each + usize::from(number < longer));
        rest = behind;
        let mut list = ListBuilder::new(renderer.meter);
        for element in own {
            list.push(element.clone())?;
        }
        if let (Some(fill), true) = (&fill, longer > 0 && number >= longer) {
            list.push(fill.clone())?;
        }
        parts.push(list.finish(Form::List)?)?;
    }
    parts.finish(Form::List)
}
