//! The filters of jinja2: `value | name`.

mod lists;
mod numbers;
pub(super) mod predicates;
mod texts;

use super::arguments::Given;
use super::json;
use super::meter::fault;
use super::methods;
use super::renderer::{Filter, Made, Renderer};
use super::value::Value;

const FILTERS: [(&str, Filter); 47] = [
    ("trim", texts::trim),
    ("tojson", json::filter),
    ("length", length),
    ("count", length),
    ("default", default),
    ("d", default),
    ("join", lists::join),
    ("list", lists::list),
    ("first", lists::first),
    ("last", lists::last),
    ("map", lists::map),
    ("selectattr", lists::selectattr),
    ("rejectattr", lists::rejectattr),
    ("select", lists::select),
    ("reject", lists::reject),
    ("items", items),
    ("dictsort", lists::dictsort),
    ("sort", lists::sort),
    ("unique", lists::unique),
    ("groupby", lists::groupby),
    ("min", lists::min),
    ("max", lists::max),
    ("sum", lists::sum),
    ("reverse", lists::reverse),
    ("batch", lists::batch),
    ("slice", lists::slice),
    ("replace", texts::replace),
    ("upper", texts::upper),
    ("lower", texts::lower),
    ("title", texts::title),
    ("capitalize", texts::capitalize),
    ("string", texts::string),
    ("safe", texts::string),
    ("escape", texts::escape),
    ("e", texts::escape),
    ("indent", texts::indent),
    ("center", texts::center),
    ("truncate", texts::truncate),
    ("wordcount", texts::wordcount),
    ("format", texts::format),
    ("split", texts::split),
    ("int", numbers::int),
    ("float", numbers::float),
    ("abs", numbers::abs),
    ("round", numbers::round),
    ("attr", attr),
    ("bool", |_, value, given| {
        let [] = given.bind("bool", [])?;
        Ok(Value::Bool(value.is_true()))
    }),
];

/// The filter `name`.
pub(super) fn find(name: &str) -> Option<Filter> {
    FILTERS.iter().find(|(own, _)| *own == name).map(|(_, filter)| *filter)
}

fn length(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [] = given.bind("length", [])?;
    let count = match value {
        Value::Undefined => 0,
        Value::List(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        Value::Text(text) => {
            renderer.meter.read(text.len())?;
            text.chars().count()
        }
        Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Namespace(_)
        | Value::Macro(_)
        | Value::Loop(_)
        | Value::Function(_)
        | Value::Method(_) => return Err(fault(format!("{} has no length", value.kind()))),
    };
    Ok(Value::Int(count as i128))
}

fn default(_: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [default, boolean] = given.bind("default", ["default_value", "boolean"])?;
    let is_missing =
        matches!(value, Value::Undefined) || (boolean.is_some_and(|boolean| boolean.is_true()) && !value.is_true());
    Ok(if is_missing { default.unwrap_or_else(|| Value::text("")) } else { value.clone() })
}

fn items(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    match (value.as_dict(), value) {
        (Some(_), _) => methods::items(renderer, value, given),
        (None, Value::Undefined) => Value::list(vec![]),
        (None, _) => Err(fault(format!("items needs a dictionary; got {}", value.kind()))),
    }
}

fn attr(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Made {
    let [name] = given.bind("attr", ["name"])?;
    let name = super::arguments::required(name, "attr", "a name")?;
    let name = super::arguments::text(&name, "attr", renderer.meter)?;
    renderer.attribute(value, name)
}
