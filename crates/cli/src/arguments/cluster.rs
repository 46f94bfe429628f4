//! Arguments of the commands that ask about a cluster. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::arguments::{EXIT_CODES, Format, RunArguments};
use crate::simulate::rank_times::TracedRanks;

/// Which cluster a run is meant for.
#[derive(Debug, Args)]
pub struct RunClusterArguments {
    /// A profile: the name of a built-in one, or a file; a preset has its own cluster as default
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cluster: Option<String>,
    /// Treat the run as one of another trainer: a built-in one, a file, or, without a value, [software] of the profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
}

impl RunClusterArguments {
    /// Files that the arguments name, which an output must not replace. Built-in names are not files.
    pub fn inputs(&self) -> Vec<PathBuf> {
        self.cluster.iter().chain(&self.software).map(PathBuf::from).collect()
    }
}

/// Which cluster is meant.
#[derive(Debug, Args)]
pub struct ClusterArguments {
    /// A profile: the name of a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cluster: String,
    /// Treat the run as one of another trainer: a built-in one, a file, or, without a value, [software] of the profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
}

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// Which run is meant.
    #[command(flatten)]
    pub run: RunArguments,
    /// Which cluster is meant.
    #[command(flatten)]
    pub cluster: RunClusterArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Draw the step into this file
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Write every instruction with its time into this file, for Perfetto or chrome://tracing: a process for each rank, a thread for each stream
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Ranks in the trace: all, replica (those of the first), pipeline (one of each stage), or numbers, e.g. 0,8,16-23. Ranks of a stage are alike;
    /// by default all up to 64 ranks, and one pipeline of more
    #[arg(long, value_name = "RANKS", requires = "trace")]
    pub ranks: Option<TracedRanks>,
    /// Compare the predicted time of every instruction with its time in this trace, written by train --trace
    #[arg(long, value_name = "FILE.json")]
    pub against: Option<PathBuf>,
}

impl SimulateArguments {
    /// [`SimulateArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// Which run is meant; its layout does not count.
    #[command(flatten)]
    pub run: RunArguments,
    /// Which cluster is meant.
    #[command(flatten)]
    pub cluster: RunClusterArguments,
    /// Number of accelerators for the run
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = accelerators)]
    pub gpus: usize,
    /// Number of layouts to show
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub top: u8,
    /// Fix a key of the layout, e.g. --fix tp=8 or --fix reduce=step; may be given many times
    #[arg(long, value_name = "KEY=VALUE")]
    pub fix: Vec<String>,
    /// Memory limit of a rank in units of 10^9 bytes, instead of all memory of its accelerator
    #[arg(long, value_name = "GB", allow_negative_numbers = true, value_parser = memory_gb)]
    pub max_memory: Option<f64>,
    /// Share of the memory in per cent that layouts leave free; without it 6, or 0 with --max-memory. Faster ones that fit are listed apart
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = margin)]
    pub margin: Option<f64>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the run with the best layout into this file
    #[arg(long, value_name = "RUN.toml")]
    pub write: Option<PathBuf>,
}

/// More than any cluster has. Each way to divide them is a layout to judge.
const MOST_ACCELERATORS: usize = 1 << 20;

fn accelerators(text: &str) -> Result<usize, String> {
    let rule = format!("a run needs a whole number of accelerators, from 1 to {MOST_ACCELERATORS}");
    text.parse().ok().filter(|count| (1..=MOST_ACCELERATORS).contains(count)).ok_or(rule)
}

fn memory_gb(text: &str) -> Result<f64, String> {
    let memory_gb = text.parse().ok().filter(|memory_gb: &f64| memory_gb.is_finite() && *memory_gb > 0.0);
    memory_gb.ok_or("is not a size of memory; give units of 10^9 bytes, e.g. 40, or leave the option out".into())
}

fn margin(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| (0.0..100.0).contains(percent));
    percent.ok_or(
        "is not a share of the memory; give per cent from 0 to below 100, e.g. 10, or leave the option out".into(),
    )
}

impl PlanArguments {
    /// [`PlanArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Which rows of which table are meant.
#[derive(Debug, Args)]
pub struct RowsArguments {
    /// Only these rows, e.g. --rows "model = gpt and pp > 1 or every 10 from 0"; comparisons are = != < <= > >=
    #[arg(long, value_name = "EXPR")]
    pub rows: Option<String>,
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    /// Table of measured runs: comma-separated, one run per row
    #[arg(value_name = "RUNS.csv")]
    pub table: PathBuf,
    /// Which cluster they ran on.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// Which rows are meant.
    #[command(flatten)]
    pub rows: RowsArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the prediction of every row into this file
    #[arg(long, value_name = "FILE.csv")]
    pub predictions: Option<PathBuf>,
}

impl ValidateArguments {
    /// [`ValidateArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// What is done with profiles.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Fit the constants of a profile to measured runs
    #[command(after_help = EXIT_CODES)]
    Fit(FitArguments),
    /// Measure this machine: products, attention, memory, launches and reductions, with a rank on every core, and write its profile
    #[command(after_help = EXIT_CODES)]
    Measure(MeasureArguments),
}

/// Arguments of `cluster measure`.
#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// File for the profile
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,
}

/// Arguments of `cluster fit`.
#[derive(Debug, Args)]
pub struct FitArguments {
    /// Table of measured runs: comma-separated, one run per row
    #[arg(long, value_name = "RUNS.csv")]
    pub table: PathBuf,
    /// The profile to start from: the name of a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub base: String,
    /// File for the fitted profile
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,
    /// Which rows are meant.
    #[command(flatten)]
    pub rows: RowsArguments,
    /// Fit only these constants, e.g. --constants compute.matrix_efficiency,network.efficiency
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub constants: Vec<String>,
    /// Treat the runs as those of another trainer: a built-in one, a file, or, without a value, [software] of the profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
}
