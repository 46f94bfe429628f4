//! The keys of inline tables.

use super::nearest::nearest;
use super::source::Value;
use crate::problem::Problem;

/// The problems of `key = value`, a table or a list of tables, whose keys are `known`: one for each other key.
pub fn unknown(key: &str, value: &Value, known: &[&str]) -> Vec<Problem> {
    let tables = match value.list() {
        Some(items) => items,
        None => std::slice::from_ref(value),
    };
    let of_table = |table: &Value| {
        let entries = table.table().unwrap_or_default();
        let others = entries.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        others.map(|(name, _)| problem(key, table, name, known)).collect::<Vec<_>>()
    };
    tables.iter().flat_map(of_table).collect()
}

fn problem(key: &str, table: &Value, name: &str, known: &[&str]) -> Problem {
    let remedy = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its keys are {}", known.join(", ")),
    };
    Problem::of_key(key, format!("has the unknown key `{name}` in {table}"), remedy)
}
