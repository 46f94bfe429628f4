//! `pleach validate`: predictions of a table of measured runs.

use std::collections::BTreeMap;
use std::path::Path;

use cluster::Software;
use plan::{Errors, Filter, MeasuredRun, PreparedRun, Ranking, Report, Scored, Table};
use serde::Serialize;

use crate::arguments::Format;
use crate::cluster_arguments::{RowsArguments, ValidateArguments};
use crate::cluster_profile::{profile, software};
use crate::failure::Failure;
use crate::memory_table::aligned;
use crate::output::print;

/// Predicts every row that is meant and prints how far the predictions are.
///
/// # Errors
/// A table or profile that cannot be used.
pub fn validate(arguments: &ValidateArguments) -> Result<(), Failure> {
    let cluster = profile(&arguments.cluster.cluster)?;
    let asked = arguments.cluster.software.as_deref();
    let software = software(asked, &arguments.cluster.cluster, &cluster)?;
    let runs = runs(&arguments.table, &arguments.rows, software.as_ref())?;
    let scored = runs.iter().map(|run| run.on(&cluster).map_err(|error| Failure::Work(error.to_string())));
    let scored: Vec<Scored> = scored.collect::<Result<_, _>>()?;
    if let Some(path) = &arguments.predictions {
        std::fs::write(path, predictions(&scored))
            .map_err(|error| Failure::Work(format!("{} cannot be written: {error}", path.display())))?;
    }
    let report = Report::new(&scored);
    match arguments.format() {
        Format::Text => print(&text(&report)),
        Format::Json => {
            let json = serde_json::to_string(&json(&report)).map_err(|error| Failure::Work(error.to_string()))?;
            print(&format!("{json}\n"))
        }
    }
}

/// The rows of a table that are meant, ready to be timed.
///
/// # Errors
/// A table that cannot be read, a choice of rows that is none, a row that is no run.
pub fn runs(path: &Path, rows: &RowsArguments, software: Option<&Software>) -> Result<Vec<PreparedRun>, Failure> {
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::Input(format!("{name} cannot be read: {error}")))?;
    let table = Table::read(&name, &text).map_err(|error| Failure::Input(error.to_string()))?;
    let filter = match &rows.rows {
        None => Filter::all(),
        Some(text) => text.parse().map_err(|error| Failure::Input(format!("--rows {error}")))?,
    };
    let chosen = table.rows.iter().filter(|row| filter.takes(row));
    let prepared = chosen.map(|row| {
        let run = MeasuredRun::new(row).map_err(|error| Failure::Input(format!("{name}, {error}")))?;
        PreparedRun::new(run, software)
            .map_err(|error| Failure::Input(format!("{name}, line {}: cannot be planned: {error}", row.line)))
    });
    let prepared: Vec<PreparedRun> = prepared.collect::<Result<_, _>>()?;
    if prepared.is_empty() {
        return Err(Failure::Input(format!("{name}: no row is meant; leave --rows out to take all")));
    }
    Ok(prepared)
}

fn predictions(scored: &[Scored]) -> String {
    let mut text = String::from("row,model,layout,measured_s,predicted_s,error\n");
    for row in scored {
        let number = |value: Option<f64>| value.map(|value| format!("{value:.5}")).unwrap_or_default();
        text += &format!(
            "{},{},{},{},{:.5},{}\n",
            row.index,
            row.model,
            row.layout,
            number(row.measured_s),
            row.predicted_s,
            number(row.error())
        );
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn text(report: &Report) -> String {
    let error_row = |name: &str, errors: &Errors| {
        let shares = [errors.mean, errors.median, errors.p90, errors.largest].map(percent);
        [name.to_string(), errors.rows.to_string()].into_iter().chain(shares).collect::<Vec<_>>()
    };
    let header = ["absolute error", "rows", "mean", "median", "p90", "largest"].map(str::to_string).to_vec();
    let errors = [header, error_row("predicted", &report.errors), error_row("one constant", &report.baseline)];
    let ranking_row = |name: &str, ranking: &Ranking| {
        let spearman = ranking.spearman.map_or("none".to_string(), |value| format!("{value:.3}"));
        vec![name.to_string(), ranking.rows.to_string(), spearman, percent(ranking.best_slower_by)]
    };
    let header = ["order", "rows", "Spearman", "predicted best is slower by"].map(str::to_string).to_vec();
    let mut rankings = vec![header, ranking_row("all", &report.pooled)];
    rankings.extend(report.models.iter().map(|(model, ranking)| ranking_row(model, ranking)));
    format!("{}\n{}", aligned(&errors), aligned(&rankings))
}

#[derive(Serialize)]
struct JsonErrors {
    rows: usize,
    mean: f64,
    median: f64,
    p90: f64,
    largest: f64,
}

#[derive(Serialize)]
struct JsonRanking {
    rows: usize,
    spearman: Option<f64>,
    predicted_best_slower_by: f64,
}

#[derive(Serialize)]
struct JsonReport {
    errors: JsonErrors,
    one_constant: JsonErrors,
    pooled: JsonRanking,
    models: BTreeMap<String, JsonRanking>,
}

fn json(report: &Report) -> JsonReport {
    let errors = |errors: &Errors| {
        let Errors { rows, mean, median, p90, largest } = *errors;
        JsonErrors { rows, mean, median, p90, largest }
    };
    let ranking = |ranking: &Ranking| JsonRanking {
        rows: ranking.rows,
        spearman: ranking.spearman,
        predicted_best_slower_by: ranking.best_slower_by,
    };
    JsonReport {
        errors: errors(&report.errors),
        one_constant: errors(&report.baseline),
        pooled: ranking(&report.pooled),
        models: report.models.iter().map(|(model, of)| (model.clone(), ranking(of))).collect(),
    }
}
