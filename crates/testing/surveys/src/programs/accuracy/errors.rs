//! The errors of all scored rows by accelerator and trainer, which predictions carry.

use std::collections::BTreeMap;
use std::error::Error;

use cluster::{Cluster, named};
use plan::Errors;
use plan::known_errors::family;
use surveys::accuracy::Outcome;

/// The table as comma-separated text.
pub fn table(outcomes: &[Outcome]) -> Result<String, Box<dyn Error>> {
    let mut all: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for scored in outcomes.iter().flat_map(|outcome| &outcome.scored) {
        let cluster = Cluster::from_toml(named(scored.runs.profile).unwrap_or_default())?;
        let errors = scored.rows.iter().filter_map(|(_, row)| row.time_s.error());
        all.entry((family(&cluster).to_string(), scored.runs.software)).or_default().extend(errors);
    }
    let mut text = String::from("accelerator,trainer,rows,shortest,longest,mean\n");
    for ((accelerator, trainer), errors) in all {
        let shortest = errors.iter().copied().fold(0.0, f64::min);
        let longest = errors.iter().copied().fold(0.0, f64::max);
        let Errors { rows, mean, .. } = Errors::of(errors);
        text += &format!("{accelerator},{trainer},{rows},{shortest:.3},{longest:.3},{mean:.3}\n");
    }
    Ok(text)
}
