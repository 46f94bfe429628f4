//! `pleach validate`: predictions of a table of measured runs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use cluster::{Cluster, Software};
use config::figures::{counted, grouped};
use files::{InputKind, read_text};
use plan::{
    BetterTrainers, Errors, Filter, Fits, MeasuredRun, PreparedRun, Pricing, Ranking, Report, Row, Scored, Table,
    better_trainers, scores,
};
use run::failure::Failure;
use run::places::output_file::OutputFile;
use serde::Serialize;

use crate::arguments::cluster::{RowsArguments, ValidateArguments};
use crate::arguments::format::Format;
use crate::cluster::profile::{profile, software};
use crate::screen::aligned::aligned;
use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::patience::shown_while;
use crate::screen::terminal;

/// Columns that are not read and that are named.
const NAMED_COLUMNS: usize = 10;

/// Predicts every row that is meant and prints how far the predictions are.
///
/// # Errors
/// A table or profile that cannot be used.
pub fn validate(arguments: &ValidateArguments) -> Result<(), Failure> {
    let inputs = [arguments.table.clone(), arguments.cluster.cluster.clone().into()];
    let file = OutputFile::promised_if("--predictions", arguments.predictions.as_deref(), &inputs)?;
    let cluster = profile(&arguments.cluster.cluster)?;
    let asked = arguments.cluster.software.as_deref();
    let software = software(asked, &arguments.cluster.cluster, &cluster)?;
    let runs = Runs::scored(&arguments.table, &arguments.rows, software.as_ref(), &cluster)?;
    if let Some(file) = file {
        file.write(predictions(&runs.predicted))?;
    }
    let report = Report::new(&runs.predicted);
    match arguments.format() {
        Format::Text => {
            let better = runs.better_trainers_line(&cluster, software.as_ref(), asked)?;
            let text = text(&report) + &runs.left_out_line() + &runs.unread_line() + &better;
            print(&wrapped(&text, terminal::columns()))
        }
        Format::Json => {
            let json =
                serde_json::to_string(&json(&report, &runs)).map_err(|error| Failure::Work(error.to_string()))?;
            print(&format!("{json}\n"))
        }
    }
}

/// Rows of a table, each with its prediction.
pub struct Runs<Predicted> {
    /// Those that are meant and that pleach can plan.
    pub measured: Vec<MeasuredRun>,
    /// One for each of these.
    pub predicted: Vec<Predicted>,
    /// Why others that are meant are not among them: runs that pleach has no words for.
    pub left_out: Vec<String>,
    /// How many of these by the column that says so.
    pub left_out_by: BTreeMap<String, usize>,
    /// Columns of the table that are not read.
    pub unread: Vec<String>,
}

impl Runs<Scored> {
    /// Reads those rows of a table that are meant, and prices them. A terminal shows how many are priced.
    ///
    /// # Errors
    /// See [`Runs::read`], and degrees that make no mesh.
    fn scored(
        path: &Path,
        rows: &RowsArguments,
        software: Option<&Software>,
        cluster: &Cluster,
    ) -> Result<Runs<Scored>, Failure> {
        let pricing = Pricing::default();
        Runs::read(path, rows, |measured| {
            let scored =
                shown_while(|elapsed| priced(&pricing, elapsed), || scores(measured, software, cluster, &pricing));
            scored.map_err(|error| Failure::Work(error.to_string()))
        })
    }
}

/// How many layouts are priced so far.
fn priced(pricing: &Pricing, elapsed: Duration) -> String {
    let steps = counted(pricing.steps() as u64, "layout");
    format!("priced {} of {steps} in {} s", grouped(pricing.priced() as u64), elapsed.as_secs())
}

impl Runs<PreparedRun> {
    /// Reads those rows of a table that are meant, ready to be timed on any profile.
    ///
    /// # Errors
    /// See [`Runs::read`].
    pub fn prepared(
        path: &Path,
        rows: &RowsArguments,
        software: Option<&Software>,
    ) -> Result<Runs<PreparedRun>, Failure> {
        Runs::read(path, rows, |measured| Ok(PreparedRun::all(measured, software)))
    }
}

impl<Predicted> Runs<Predicted> {
    /// Reads those rows of a table that are meant, and predicts them by `predict`.
    ///
    /// # Errors
    /// A table that cannot be read, an invalid choice of rows, a cell that cannot be used, and no row that can be
    /// planned.
    fn read<Reason: Display>(
        path: &Path,
        rows: &RowsArguments,
        predict: impl FnOnce(&[MeasuredRun]) -> Result<Vec<Result<Predicted, Reason>>, Failure>,
    ) -> Result<Runs<Predicted>, Failure> {
        let name = path.display().to_string();
        let text = read_text(path, InputKind::Table).map_err(|error| Failure::Input(format!("{name} {error}")))?;
        let table = Table::read(&name, &text).map_err(|error| Failure::Input(error.to_string()))?;
        table.check_measured(&name).map_err(|error| Failure::Input(error.to_string()))?;
        let unread = table.check_columns(&name).map_err(|error| Failure::Input(error.to_string()))?;
        let unread = unread.into_iter().map(str::to_string).collect();
        let filter = filter(rows, &name, &table)?;
        let (left_out, left_out_by) = (vec![], BTreeMap::new());
        let mut runs = Runs { measured: vec![], predicted: vec![], left_out, left_out_by, unread };
        let (mut measured, mut lines) = (vec![], vec![]);
        for row in table.rows.iter().filter(|row| filter.takes(row)) {
            match MeasuredRun::new(row) {
                Ok(run) => {
                    measured.push(run);
                    lines.push(row.line);
                }
                Err(error) if let Some(column) = Row::column_beyond(&error).map(str::to_string) => {
                    *runs.left_out_by.entry(column).or_default() += 1;
                    runs.left_out.push(error.to_string());
                }
                Err(error) => return Err(Failure::Input(format!("{name}, {error}"))),
            }
        }
        let predicted = predict(&measured)?;
        for ((run, line), predicted) in measured.into_iter().zip(lines).zip(predicted) {
            match predicted {
                Ok(predicted) => {
                    runs.measured.push(run);
                    runs.predicted.push(predicted);
                }
                Err(error) => runs.left_out.push(format!("line {line}: {error}")),
            }
        }
        runs.measured_or_refused(&name, table.rows.len())
    }

    /// These, where at least one has a measurement.
    fn measured_or_refused(self, name: &str, table_rows: usize) -> Result<Runs<Predicted>, Failure> {
        match (self.measured.is_empty(), self.left_out.first()) {
            (false, _) if self.measured.iter().any(MeasuredRun::is_measured) => Ok(self),
            (false, _) => Err(Failure::Input(format!(
                "{name}: no selected row ({}) has a measurement; fill in iter_s, mem_gb or status",
                self.measured.len()
            ))),
            (true, None) if table_rows == 0 => {
                Err(Failure::Input(format!("{name} has a header and no rows; add a row for each run")))
            }
            (true, None) => {
                let rows = counted(table_rows as u64, "row");
                Err(Failure::Input(format!("{name}: --rows selects none of its {rows}; omit --rows for all")))
            }
            (true, Some(first)) => Err(Failure::Input(format!(
                "{name}: no selected row ({}) is a run that pleach can plan; {first}",
                self.left_out.len()
            ))),
        }
    }

    /// How many rows are left out, by which columns, and why the first is; nothing where none is.
    pub fn left_out_line(&self) -> String {
        let Some(first) = self.left_out.first() else { return String::new() };
        let by: Vec<String> = self.left_out_by.iter().map(|(column, number)| format!("{number} by {column}")).collect();
        let by = if by.len() > 1 { format!(" ({})", by.join(", ")) } else { String::new() };
        format!("left out {}{by}: {first}\n", counted(self.left_out.len() as u64, "row"))
    }

    /// The columns that are not read; nothing where all are.
    pub fn unread_line(&self) -> String {
        if self.unread.is_empty() {
            return String::new();
        }
        let more = self.unread.len().saturating_sub(NAMED_COLUMNS);
        let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
        let named: Vec<&str> = self.unread.iter().take(NAMED_COLUMNS).map(String::as_str).collect();
        format!("columns that are not read: {}{more}\n", named.join(", "))
    }

    /// The trainers whose descriptions meet the rows better than the chosen one, with their mean errors; nothing where
    /// none does.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn better_trainers_line(
        &self,
        cluster: &Cluster,
        software: Option<&Software>,
        asked: Option<&str>,
    ) -> Result<String, Failure> {
        let runs: Vec<&MeasuredRun> = self.measured.iter().collect();
        let better = shown_while(
            |elapsed| format!("comparing trainers: {} s so far", elapsed.as_secs()),
            || better_trainers(cluster, &runs, software),
        );
        let better = better.map_err(|error| Failure::Work(error.to_string()))?;
        let Some(BetterTrainers { rows, chosen_mean, better }) = better else { return Ok(String::new()) };
        let named: Vec<String> = better.iter().map(|(name, mean)| format!("{name} {}", percent(*mean))).collect();
        Ok(format!(
            "these trainers fit better, by {} of the rows: {}; {} {}\n",
            grouped(rows as u64),
            named.join(", "),
            asked.filter(|asked| !asked.is_empty()).unwrap_or(if asked.is_some() { "the profile's" } else { "pleach" }),
            percent(chosen_mean)
        ))
    }
}

/// The choice of rows, whose columns are those of the table.
fn filter(rows: &RowsArguments, name: &str, table: &Table) -> Result<Filter, Failure> {
    let Some(text) = &rows.rows else { return Ok(Filter::all()) };
    let filter: Filter = text.parse().map_err(|error| Failure::Input(format!("--rows {error}")))?;
    if let Some(unknown) = filter.columns().find(|asked| table.columns.iter().all(|column| column != asked)) {
        let known = table.columns.join(", ");
        return Err(Failure::Input(format!("--rows `{text}`: {name} has no column `{unknown}`; there are {known}")));
    }
    Ok(filter)
}

fn predictions(scored: &[Scored]) -> String {
    let mut text = String::from(
        "row,model,layout,measured_s,predicted_s,error,measured_gb,predicted_gb,memory_error,measured_fits,predicted_fits\n",
    );
    let number = |value: Option<f64>| value.map(|value| format!("{value:.5}")).unwrap_or_default();
    let word = |fits: bool| if fits { "yes" } else { "no" };
    for row in scored {
        let numbers = [
            row.time_s.measured,
            Some(row.time_s.predicted),
            row.time_s.error(),
            row.memory.measured.map(|bytes| bytes * 1e-9),
            Some(row.memory.predicted * 1e-9),
            row.memory.error(),
        ];
        text += &format!(
            "{},{},{},{},{},{}\n",
            row.index,
            row.model,
            row.layout,
            numbers.map(number).join(","),
            row.fits.measured.map(word).unwrap_or_default(),
            word(row.fits.predicted)
        );
    }
    text
}

/// Errors from this on are written with an exponent.
const LONG: f64 = 1e6;

fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent.abs() < LONG => format!("{percent:.1} %"),
        percent => format!("{percent:.1e} %"),
    }
}

fn text(report: &Report) -> String {
    let error_row = |name: &str, errors: &Errors| {
        let shares = [errors.mean, errors.median, errors.p90, errors.largest].map(percent);
        [name.to_string(), errors.rows.to_string()].into_iter().chain(shares).collect::<Vec<_>>()
    };
    let header = ["absolute error", "rows", "mean", "median", "p90", "largest"].map(str::to_string).to_vec();
    let mut errors = vec![header];
    let of_time = [("predicted", &report.errors), ("one constant", &report.baseline)];
    let of_memory = [("memory", &report.memory), ("memory at rest", &report.resident)];
    let known = of_time.into_iter().chain(of_memory).filter(|(_, errors)| errors.rows > 0);
    errors.extend(known.map(|(name, errors)| error_row(name, errors)));
    let Fits { rows, right, wrongly_fit } = report.fits;
    let fits = match rows {
        0 => String::new(),
        rows => format!(
            "fits    {right} of {} predicted correctly; {wrongly_fit} ran out of memory against the prediction\n",
            counted(rows as u64, "row")
        ),
    };
    let ranking_row = |name: &str, ranking: &Ranking| {
        let spearman = ranking.spearman.map_or("none".to_string(), |value| format!("{value:.3}"));
        vec![name.to_string(), ranking.rows.to_string(), spearman, percent(ranking.best_slower_by)]
    };
    let header = ["order", "rows", "Spearman", "predicted best is slower by"].map(str::to_string).to_vec();
    let mut rankings = vec![header, ranking_row("all", &report.pooled)];
    rankings.extend(report.models.iter().map(|(model, ranking)| ranking_row(model, ranking)));
    format!("{}{fits}\n{}", aligned(&errors), aligned(&rankings))
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
struct JsonFits {
    rows: usize,
    right: usize,
    wrongly_fit: usize,
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
    memory: JsonErrors,
    memory_at_rest: JsonErrors,
    fits: JsonFits,
    left_out: Vec<String>,
    columns_not_read: Vec<String>,
    pooled: JsonRanking,
    models: BTreeMap<String, JsonRanking>,
}

fn json(report: &Report, runs: &Runs<Scored>) -> JsonReport {
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
        memory: errors(&report.memory),
        memory_at_rest: errors(&report.resident),
        fits: JsonFits { rows: report.fits.rows, right: report.fits.right, wrongly_fit: report.fits.wrongly_fit },
        left_out: runs.left_out.clone(),
        columns_not_read: runs.unread.clone(),
        pooled: ranking(&report.pooled),
        models: report.models.iter().map(|(model, of)| (model.clone(), ranking(of))).collect(),
    }
}
