//! The methods of values. Those that would change a value are refused, as in the sandbox of transformers.

use super::arguments::{Given, required};
use super::compare::equal;
use super::meter::{Fault, fault};
use super::renderer::Renderer;
use super::text_methods::TEXT;
use super::value::{Form, ListBuilder, Method, Value};

/// The result of a method for a value and arguments.
pub(super) type MethodFunction = fn(&mut Renderer<'_>, &Value, Given) -> Result<Value, Fault>;

const DICT: [(&str, MethodFunction); 5] =
    [("get", get), ("items", items), ("keys", keys), ("values", values), ("copy", same)];

const LIST: [(&str, MethodFunction); 3] = [("count", count), ("index", index), ("copy", same)];

/// Methods that would change a dictionary.
const DICT_CHANGES: [&str; 5] = ["update", "pop", "popitem", "setdefault", "clear"];

/// Methods that would change a list.
const LIST_CHANGES: [&str; 8] = ["append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear"];

const LOOP: [(&str, MethodFunction); 2] = [("cycle", cycle), ("changed", changed)];

/// The methods of a value, and the names of those that would change it.
type Methods = (&'static [(&'static str, MethodFunction)], &'static [&'static str]);

fn methods_of(value: &Value) -> Methods {
    match value {
        Value::Text(_) => (&TEXT, &[]),
        Value::Dict(_) => (&DICT, &DICT_CHANGES),
        Value::List(list) if list.form() == Form::List => (&LIST, &LIST_CHANGES),
        Value::List(_) => (&LIST[..2], &[]),
        Value::Loop(_) => (&LOOP, &[]),
        Value::Undefined
        | Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Namespace(_)
        | Value::Macro(_)
        | Value::Function(_)
        | Value::Method(_) => (&[], &[]),
    }
}

/// The method `name` of `value`.
pub(super) fn find(value: &Value, name: &str) -> Option<Method> {
    let (table, changes) = methods_of(value);
    let mut names = table.iter().map(|(own, _)| own).chain(changes);
    names.find(|own| **own == name).map(|name| Method { name })
}

impl Renderer<'_> {
    pub(super) fn call_method(&mut self, value: &Value, method: Method, given: Given) -> Result<Value, Fault> {
        self.meter.step(1)?;
        let known = methods_of(value).0.iter().find(|(own, _)| *own == method.name);
        let Some((_, call)) = known else {
            return Err(fault(format!("{} changes {}, which is not allowed", method.name, value.kind())));
        };
        call(self, value, given)
    }
}

fn same(_: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [] = given.bind("copy", [])?;
    Ok(value.clone())
}

fn get(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [key, default] = given.bind("get", ["key", "default"])?;
    let key = required(key, "get", "a key")?;
    let found = value.as_dict().map_or(Ok(None), |dict| dict.get(&key, renderer.meter))?;
    Ok(found.cloned().or(default).unwrap_or(Value::None))
}

pub(super) fn items(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [] = given.bind("items", [])?;
    let mut list = ListBuilder::new(renderer.meter);
    if let Some(dict) = value.as_dict() {
        for (key, value) in dict.walk(renderer.meter)? {
            let mut pair = ListBuilder::new(renderer.meter);
            pair.push(key.clone())?;
            pair.push(value.clone())?;
            list.push(pair.finish(Form::Tuple)?)?;
        }
    }
    list.finish(Form::List)
}

fn keys(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [] = given.bind("keys", [])?;
    Ok(Value::List(renderer.elements(value)?))
}

fn values(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [] = given.bind("values", [])?;
    let mut list = ListBuilder::new(renderer.meter);
    if let Some(dict) = value.as_dict() {
        for (_, value) in dict.walk(renderer.meter)? {
            list.push(value.clone())?;
        }
    }
    list.finish(Form::List)
}

fn count(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [wanted] = given.bind("count", ["value"])?;
    let wanted = required(wanted, "count", "a value")?;
    let mut count = 0;
    for element in renderer.elements(value)?.walk(renderer.meter)? {
        count += i128::from(equal(element, &wanted, renderer.meter)?);
    }
    Ok(Value::Int(count))
}

fn index(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [wanted] = given.bind("index", ["value"])?;
    let wanted = required(wanted, "index", "a value")?;
    for (place, element) in renderer.elements(value)?.walk(renderer.meter)?.iter().enumerate() {
        if equal(element, &wanted, renderer.meter)? {
            return Ok(Value::Int(place as i128));
        }
    }
    Err(fault("index: the list does not have the value"))
}

fn cycle(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    if let Value::Loop(number) = value { renderer.cycle(*number, given) } else { Ok(Value::Undefined) }
}

fn changed(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    if let Value::Loop(number) = value { renderer.changed(*number, given) } else { Ok(Value::Undefined) }
}
