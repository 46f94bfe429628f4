//! The key `train.groups`.

use super::reader::Reader;
use super::source::Value;
use super::writer::Writer;
use crate::parameter_groups::ParameterGroup;

/// Reads the groups; none where the key is absent.
pub fn read(reader: &mut Reader) -> Vec<ParameterGroup> {
    let wanted =
        "a list of groups such as [{ parameters = [\"embedding.*\"], learning_rate_scale = 0.5, weight_decay = 0.0 }]";
    let known = ["parameters", "learning_rate_scale", "weight_decay"];
    reader.tables_of("train.groups", wanted, &known, group).unwrap_or_default()
}

/// A table with names and, if it likes, either number.
fn group(value: &Value) -> Option<ParameterGroup> {
    let mut parameters = None;
    let mut group = ParameterGroup { parameters: vec![], learning_rate_scale: 1.0, weight_decay: None };
    for (key, value) in value.table()? {
        match key.as_str() {
            "parameters" => parameters = Some(names(value)?),
            "learning_rate_scale" => group.learning_rate_scale = value.number()?,
            "weight_decay" => group.weight_decay = Some(value.number()?),
            _ => return None,
        }
    }
    Some(ParameterGroup { parameters: parameters?, ..group })
}

fn names(value: &Value) -> Option<Vec<String>> {
    value.list()?.iter().map(|name| name.text().map(str::to_string)).collect()
}

/// Writes the groups, where there are any.
pub fn write(groups: &[ParameterGroup], writer: &mut Writer) {
    if groups.is_empty() {
        return;
    }
    let written = |group: &ParameterGroup| {
        let ParameterGroup { parameters, learning_rate_scale, weight_decay } = group;
        let names: Vec<String> = parameters.iter().map(|name| toml::Value::String(name.clone()).to_string()).collect();
        let decay = weight_decay.map_or(String::new(), |decay| format!(", weight_decay = {decay:?}"));
        format!("{{ parameters = [{}], learning_rate_scale = {learning_rate_scale:?}{decay} }}", names.join(", "))
    };
    let tables: Vec<String> = groups.iter().map(written).collect();
    writer.bare("groups", &format!("[{}]", tables.join(", ")));
}
