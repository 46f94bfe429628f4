//! The table of the promise and what was measured, in Markdown.
use crate::results::Row;
use std::collections::BTreeMap;
pub fn table(rows: &BTreeMap<String, Row>) -> (String, Vec<String>) {
    let faults = rows
        .iter()
        .filter(|(_, row)| !row.faults.is_empty())
        .map(|(name, row)| format!("{name}: {}", row.faults))
        .collect();
    (format!("{} rows", rows.len()), faults)
}
