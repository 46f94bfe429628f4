//! The drawn steps of a run, by column: all of them, or of a long run those that a drawing cannot do without.

use crate::metrics::{Metrics, StepRow};
use crate::numbers::array;

/// Drawn columns: the key in the page's data, and the key in `metrics.jsonl`.
const COLUMNS: &[(&str, &str)] = &[
    ("loss", "loss"),
    ("rate", "learning_rate"),
    ("norm", "grad_norm"),
    ("speed", "tokens_per_second"),
    ("peak", "peak_share"),
    ("scale", "loss_scale"),
    ("load", "expert_load_max"),
    ("idle", "idle_experts"),
    ("dropped", "dropped_share"),
    ("entropy", "router_entropy"),
    ("balance", "router_balance_loss"),
    ("z_loss", "router_z_loss"),
    ("largest_correction", "router_bias_max"),
    ("smallest_correction", "router_bias_min"),
    ("memory", "resident_bytes"),
];

/// JSON of the drawn steps, at most about `most`: an object of arrays.
pub(crate) fn columns(metrics: &Metrics, most: usize) -> String {
    let rows = drawn(&metrics.steps, most);
    let mut fields = vec![
        format!("\"steps\":{}", exact(rows.iter().map(|row| row.step))),
        format!("\"tokens\":{}", exact(rows.iter().map(|row| row.total_tokens))),
        format!("\"seconds\":{}", array(rows.iter().map(|row| row.total_seconds))),
    ];
    for (name, key) in COLUMNS {
        let values = || rows.iter().map(|row| row.values.get(key).unwrap_or(f64::NAN));
        // A column without a number is not drawn, one without a finite number is.
        if rows.iter().any(|row| row.values.get(key).is_some()) {
            fields.push(format!("\"{name}\":{}", array(values())));
        }
    }
    format!("{{{}}}", fields.join(","))
}

fn exact(values: impl Iterator<Item = u64>) -> String {
    let values: Vec<String> = values.map(|value| value.to_string()).collect();
    format!("[{}]", values.join(","))
}

/// All rows where they are few. Otherwise those of each of `most / 4` neighbourhoods with the smallest and the largest
/// loss and norm, and the last row: what a drawing of minima and maxima by pixel shows.
fn drawn(rows: &[StepRow], most: usize) -> Vec<&StepRow> {
    if rows.len() <= most {
        return rows.iter().collect();
    }
    let neighbourhood = rows.len().div_ceil((most / 4).max(1));
    let mut kept: Vec<&StepRow> = rows.chunks(neighbourhood).flat_map(extremes).collect();
    kept.extend(rows.last());
    kept.dedup_by_key(|row| row.step);
    kept
}

/// Rows with the smallest and the largest loss and norm, in order.
fn extremes(rows: &[StepRow]) -> Vec<&StepRow> {
    let mut places: Vec<usize> = vec![];
    for key in ["loss", "grad_norm"] {
        // NaN is larger than all numbers here, so that it is kept.
        let value = |place: &usize| rows[*place].values.get(key).unwrap_or(f64::NAN);
        let by_value = |one: &usize, other: &usize| value(one).abs().total_cmp(&value(other).abs());
        places.extend((0..rows.len()).min_by(by_value));
        places.extend((0..rows.len()).max_by(by_value));
    }
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| &rows[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::values;

    fn rows(number: u64, loss: impl Fn(u64) -> f64) -> Vec<StepRow> {
        let row = |step| StepRow {
            step,
            total_tokens: 64 * step,
            total_seconds: step as f64,
            values: values(&[("loss", loss(step))]),
        };
        (1..=number).map(row).collect()
    }

    #[test]
    fn extremes_of_long_runs_are_kept_and_rows_are_bounded() {
        let rows = rows(100_000, |step| match step {
            54_321 => 99.0,
            77_777 => f64::NAN,
            step => 1.0 / step as f64,
        });
        let kept = drawn(&rows, 1000);
        assert!(kept.len() <= 1001, "{}", kept.len());
        for step in [1, 54_321, 77_777, 100_000] {
            assert!(kept.iter().any(|row| row.step == step), "step {step}");
        }
        assert!(kept.is_sorted_by_key(|row| row.step));
    }

    #[test]
    fn few_steps_are_all_there_and_columns_without_values_are_not() {
        let metrics = Metrics { steps: rows(3, |step| step as f64), ..Metrics::default() };
        assert_eq!(
            columns(&metrics, 10),
            "{\"steps\":[1,2,3],\"tokens\":[64,128,192],\"seconds\":[1,2,3],\"loss\":[1,2,3]}"
        );
    }

    #[test]
    fn drops_and_corrections_of_routers_are_drawn() {
        let kept =
            [("dropped_share", 0.25), ("router_z_loss", 0.5), ("router_bias_max", 0.0), ("router_bias_min", -0.1)];
        let row = StepRow { step: 1, total_tokens: 64, total_seconds: 1.0, values: values(&kept) };
        let metrics = Metrics { steps: vec![row], ..Metrics::default() };
        assert_eq!(
            columns(&metrics, 10),
            "{\"steps\":[1],\"tokens\":[64],\"seconds\":[1],\"dropped\":[0.25],\"z_loss\":[0.5],\
             \"largest_correction\":[0],\"smallest_correction\":[-0.1]}"
        );
    }
}
