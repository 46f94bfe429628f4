//! The steps of a run as CSV: a header, and a row for each step.

use std::collections::{BTreeMap, BTreeSet};

use crate::metrics::{Metrics, StepRow};

/// Columns that come first, in this order; all others follow by name.
const FIRST: [&str; 5] = ["loss", "held_out_loss", "learning_rate", "grad_norm", "tokens"];

/// One row per step with all numbers of its line, and the losses that were measured after that step. A cell without a
/// value is empty; numbers that are not finite are `NaN`, `Infinity` and `-Infinity`.
pub fn csv(metrics: &Metrics) -> String {
    let held_out: BTreeMap<u64, f64> = metrics.held_out.iter().map(|one| (one.step, one.loss)).collect();
    let validation: BTreeMap<String, BTreeMap<u64, f64>> = metrics
        .validation
        .iter()
        .map(|(name, losses)| {
            (format!("validation_loss {name}"), losses.iter().map(|one| (one.step, one.loss)).collect())
        })
        .collect();
    let of_steps = metrics.steps.iter().flat_map(|row| row.values.iter().map(|(name, _)| name));
    let names: BTreeSet<&str> = validation.keys().map(String::as_str).chain(of_steps).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    if !held_out.is_empty() {
        names.push("held_out_loss");
    }
    let rank = |name: &&str| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len());
    names.sort_by_key(|name| (rank(name), *name));
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let mut out = line(["step"].iter().chain(&names).map(|name| quoted(name)).collect());
    let rows: BTreeMap<u64, &StepRow> = metrics.steps.iter().map(|row| (row.step, row)).collect();
    let measured = held_out.keys().chain(validation.values().flat_map(BTreeMap::keys));
    let steps: BTreeSet<u64> = rows.keys().chain(measured).copied().collect();
    for step in steps {
        let value = |name: &&str| match *name {
            "held_out_loss" => held_out.get(&step).copied(),
            name => match validation.get(name) {
                Some(losses) => losses.get(&step).copied(),
                None => rows.get(&step).and_then(|row| row.values.get(name)),
            },
        };
        let cells = names.iter().map(|name| value(name).map_or(String::new(), cell));
        out += &line([step.to_string()].into_iter().chain(cells).collect());
    }
    out
}

/// A name in quotes where it has characters that end a cell.
fn quoted(name: &str) -> String {
    let ends = name.contains([',', '"', '\n', '\r']);
    if ends { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.into() }
}

fn cell(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_row_with_all_of_its_numbers() {
        let text = "{\"step\":1,\"loss\":4.5,\"tokens\":64,\"seconds\":0.125}\n\
                    {\"step\":2,\"loss\":\"NaN\",\"grad_norm\":\"-Infinity\",\"tokens\":64,\"seconds\":0.25}\n\
                    {\"step\":2,\"held_out_loss\":4.25,\"held_out_tokens\":10,\"seconds\":1.0}\n";
        assert_eq!(
            csv(&Metrics::parse(text)),
            "step,loss,held_out_loss,grad_norm,tokens,seconds\n1,4.5,,,64,0.125\n2,NaN,4.25,-Infinity,64,0.25\n"
        );
        assert_eq!(csv(&Metrics::default()), "step\n");
    }

    #[test]
    fn names_are_quoted_and_measurements_without_a_step_are_kept() {
        let text =
            "{\"step\":1,\"a,b\":4.5}\n{\"step\":2,\"validation\":\"the \\\"old\\\" one\",\"validation_loss\":3.5}\n";
        assert_eq!(
            csv(&Metrics::parse(text)),
            "step,\"a,b\",\"validation_loss the \"\"old\"\" one\"\n1,4.5,\n2,,3.5\n"
        );
    }
}
