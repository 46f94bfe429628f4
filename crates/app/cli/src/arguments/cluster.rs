//! Arguments of the commands that ask about a cluster. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::arguments::exit_codes::EXIT_CODES;
use crate::arguments::format::Format;
use crate::arguments::run_file::RunArguments;
use crate::arguments::traced_ranks::TracedRanks;

/// The cluster and the trainer of a prediction; a preset has its own cluster.
#[derive(Debug, Args)]
pub struct RunClusterArguments {
    /// Cluster profile: a built-in name or a file; a preset has its own cluster as default
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cluster: Option<String>,
    /// Predict the step as executed by this trainer: a built-in name, a file, or, without a value, [software] of the
    /// profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
    /// Predict ranks that wait for one with X times the rows of experts that balanced routing gives: `expert_rank_load`
    /// of a run's metrics
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = load)]
    pub expert_load: Option<f64>,
}

/// A load of experts.
fn load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(load) if load.is_finite() && load >= 1.0 => Ok(load),
        Ok(_) | Err(_) => Err("a load is a number from 1, which is balanced routing".into()),
    }
}

impl RunClusterArguments {
    /// Files that the arguments name, which an output must not replace. Built-in names are not files.
    pub fn inputs(&self) -> Vec<PathBuf> {
        self.cluster.iter().chain(&self.software).map(PathBuf::from).collect()
    }
}

/// The cluster.
#[derive(Debug, Args)]
pub struct ClusterArguments {
    /// Cluster profile: a built-in name or a file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cluster: String,
    /// Predict the step as executed by this trainer: a built-in name, a file, or, without a value, [software] of the
    /// profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
}

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// The run.
    #[command(flatten)]
    pub run: RunArguments,
    /// The cluster.
    #[command(flatten)]
    pub cluster: RunClusterArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Draw the step as a picture in this file
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Write the predicted time of every instruction to this file, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Ranks in the trace: all, replica (the first one), pipeline (one rank of each stage), or numbers, e.g. 0,8,16-23;
    /// the default is all of up to 64 ranks, and otherwise pipeline
    #[arg(long, value_name = "RANKS", requires = "trace")]
    pub ranks: Option<TracedRanks>,
    /// Compare predicted times with this trace, written by train --trace
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
    /// The run; its layout is ignored.
    #[command(flatten)]
    pub run: RunArguments,
    /// The cluster.
    #[command(flatten)]
    pub cluster: RunClusterArguments,
    /// Number of accelerators for the run
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = accelerators)]
    pub gpus: usize,
    /// Search layouts on fewer accelerators as well; the others stay idle
    #[arg(long)]
    pub up_to: bool,
    /// Number of layouts to print, up to 255
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub top: u8,
    /// Fix a key of the layout, e.g. --fix tp=8; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub fix: Vec<String>,
    /// Memory limit of a rank in GB (10^9 bytes); the default is the memory of the accelerator
    #[arg(long, value_name = "GB", allow_negative_numbers = true, value_parser = memory_gb)]
    pub max_memory: Option<f64>,
    /// Share of memory to leave free; the default is 6, or 0 with --max-memory. Faster layouts that fit are listed
    /// separately
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = margin)]
    pub margin: Option<f64>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write a run file with the best layout
    #[arg(long, value_name = "RUN.toml")]
    pub write: Option<PathBuf>,
}

/// Numbers of accelerators whose layouts are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    Exactly,
    /// All numbers up to the given one.
    UpTo,
}

/// More than any cluster has. Each way to divide them is a layout to search.
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
    /// [`PlanArguments::up_to`] as a type.
    pub fn searched(&self) -> Searched {
        if self.up_to { Searched::UpTo } else { Searched::Exactly }
    }

    /// [`PlanArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// The rows of a table.
#[derive(Debug, Args)]
pub struct RowsArguments {
    /// Use only these rows, e.g. --rows "model = gpt and pp > 1 or every 10 from 0"; comparisons are = != < <= > >=
    #[arg(long, value_name = "EXPR")]
    pub rows: Option<String>,
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    /// CSV table of measured runs, one run per row
    #[arg(value_name = "RUNS.csv")]
    pub table: PathBuf,
    /// The cluster of the runs.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// The rows.
    #[command(flatten)]
    pub rows: RowsArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the prediction of every row to this file
    #[arg(long, value_name = "FILE.csv")]
    pub predictions: Option<PathBuf>,
}

impl ValidateArguments {
    /// [`ValidateArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Commands that create profiles.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Fit the constants of a profile to measured runs
    #[command(after_help = EXIT_CODES)]
    Fit(FitArguments),
    /// Measure this machine and write its profile: matrix products, attention, memory, launches and reductions on all
    /// cores, or on all GPUs
    #[command(after_help = EXIT_CODES)]
    Measure(MeasureArguments),
}

/// Arguments of `cluster measure`.
#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// Measure the cores of this machine or its GPUs
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: MeasuredDevice,
    /// With --device cuda, measure products by pleach's kernels or by the GPU's library, cuBLASLt
    #[arg(long, value_name = "PRODUCTS", default_value = "blocks")]
    pub products: MeasuredProducts,
    /// With --device cuda, take data sheet and network from this profile: a built-in name or a file; the default is the
    /// first built-in profile with such GPUs
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub base: Option<String>,
    /// File for the profile
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,
}

/// Devices that can be measured: a GPU in software has no speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasuredDevice {
    /// The cores of this machine.
    Cpu,
    /// Its GPUs.
    Cuda,
}

/// Whose products are measured on GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasuredProducts {
    /// The products of a run in blocks.
    Blocks,
    /// The products of a run with products of the device.
    Device,
}

/// Arguments of `cluster fit`.
#[derive(Debug, Args)]
pub struct FitArguments {
    /// CSV table of measured runs, one run per row
    #[arg(long, value_name = "RUNS.csv")]
    pub table: PathBuf,
    /// Profile to start from: a built-in name or a file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub base: String,
    /// File for the fitted profile
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,
    /// The rows.
    #[command(flatten)]
    pub rows: RowsArguments,
    /// Fit only these constants, e.g. --constants compute.matrix_efficiency,network.efficiency
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub constants: Vec<String>,
    /// Predict the runs as executed by this trainer: a built-in name, a file, or, without a value, [software] of the
    /// profile
    #[arg(long, value_name = "NAME|FILE.toml", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub software: Option<String>,
}
