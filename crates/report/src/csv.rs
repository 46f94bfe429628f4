//! The steps of a run as CSV: a header, and a row for each step.

use std::collections::BTreeMap;

use crate::metrics::Metrics;

/// Columns that come first, in this order; all others follow by name.
const FIRST: [&str; 5] = ["loss", "held_out_loss", "learning_rate", "grad_norm", "tokens"];

/// One row per step with all numbers of its line, and the held-out loss where it was measured after that step. A cell without a value is empty;
/// numbers that are not finite are `NaN`, `Infinity` and `-Infinity`.
pub fn csv(metrics: &Metrics) -> String {
    let held_out: BTreeMap<u64, f64> = metrics.held_out.iter().map(|one| (one.step, one.loss)).collect();
    let validation: BTreeMap<String, BTreeMap<u64, f64>> = metrics
        .validation
        .iter()
        .map(|(name, losses)| {
            (format!("validation_loss {name}"), losses.iter().map(|one| (one.step, one.loss)).collect())
        })
        .collect();
    let mut names: Vec<&str> = validation.keys().map(String::as_str).collect();
    for row in &metrics.steps {
        names.extend(row.values.keys().map(String::as_str));
        names.sort_unstable();
        names.dedup();
    }
    if !held_out.is_empty() {
        names.push("held_out_loss");
    }
    let rank = |name: &&str| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len());
    names.sort_by_key(|name| (rank(name), *name));
    let mut out = format!("step,{}\n", names.join(","));
    for row in &metrics.steps {
        let value = |name: &&str| match *name {
            "held_out_loss" => held_out.get(&row.step).copied(),
            name => match validation.get(name) {
                Some(losses) => losses.get(&row.step).copied(),
                None => row.values.get(name).copied(),
            },
        };
        let cells: Vec<String> = names.iter().map(|name| value(name).map_or(String::new(), cell)).collect();
        out += &format!("{},{}\n", row.step, cells.join(","));
    }
    out
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
        assert_eq!(csv(&Metrics::default()), "step,\n");
    }
}
