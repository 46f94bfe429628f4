//! The command line. The comments here are the help pages.

pub mod blame;
pub mod cluster;
pub mod data;
pub mod exit_codes;
pub mod fetch;
pub mod format;
pub mod hugging_face;
pub mod inference;
pub mod launch;
pub mod outputs;
pub mod report;
pub mod run_file;
pub mod software_value;
pub mod traced_ranks;
pub mod unknown_option;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use run::places::kept_run::Earlier;
use run::run_file::RunFile;
use run::spec::{Origin, TrainSpec};

use crate::arguments::blame::{BLAME_HELP, BlameArguments};
use crate::arguments::cluster::{ClusterCommand, PlanArguments, SimulateArguments, ValidateArguments};
use crate::arguments::data::DataCommand;
use crate::arguments::exit_codes::{EXIT_CODES, PROVE_EXIT_CODES};
use crate::arguments::fetch::FetchArguments;
use crate::arguments::format::Format;
use crate::arguments::hugging_face::{ExportArguments, ImportArguments};
use crate::arguments::inference::{EvalArguments, FORWARD_FORMAT, ForwardArguments, GenerateArguments};
use crate::arguments::launch::{LAUNCH_HELP, LaunchArguments};
use crate::arguments::report::ReportArguments;
use crate::arguments::run_file::RunArguments;

const COMPLETIONS_HELP: &str = "Where shells look for it:
  bash  pleach completions bash > ~/.local/share/bash-completion/completions/pleach
  zsh   pleach completions zsh > a folder of $fpath, under the name _pleach
  fish  pleach completions fish > ~/.config/fish/completions/pleach.fish";

/// Train language models with data, tensor, context and pipeline parallelism.
#[derive(Debug, Parser)]
#[command(name = "pleach", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without a run file, a small GPT on eight ranks
    #[command(after_help = EXIT_CODES)]
    Train(TrainArguments),
    /// Start a command as several processes, on this machine or, by ssh, on several machines
    #[command(after_help = format!("{LAUNCH_HELP}\n\n{EXIT_CODES}"))]
    Launch(LaunchArguments),
    /// Start and supervise the processes of one host by the plan in the standard input
    #[command(hide = true)]
    LaunchAgent,
    /// End the processes of a launcher that was killed, by the list in the standard input
    #[command(hide = true)]
    LaunchGuard,
    /// Validate a run file: report all errors, or show parameters, ranks and memory
    #[command(after_help = EXIT_CODES)]
    Check(CheckArguments),
    /// Run two layouts for a few steps and compare their distance with its bound
    #[command(after_help = PROVE_EXIT_CODES)]
    Prove(ProveArguments),
    /// Find the first value that differs between two layouts: step, unit, element and ranks
    #[command(after_help = EXIT_CODES)]
    Diff(PairArguments),
    /// Show the mesh, stages and pipeline of a run, or the instructions of one rank
    #[command(after_help = EXIT_CODES)]
    Explain(ExplainArguments),
    /// Predict the time and memory of a step on a cluster
    #[command(after_help = EXIT_CODES)]
    Simulate(SimulateArguments),
    /// Find the fastest layouts of a run on a cluster
    #[command(after_help = EXIT_CODES)]
    Plan(PlanArguments),
    /// Predict each row of a table of measured runs and report the errors
    #[command(after_help = EXIT_CODES)]
    Validate(ValidateArguments),
    /// Create the profile of a cluster
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Draw runs as one HTML page: losses, speed, memory, pipeline, events and run file
    #[command(after_help = EXIT_CODES)]
    Report(ReportArguments),
    /// Measure the loss of a model on held-out text
    #[command(after_help = EXIT_CODES)]
    Eval(EvalArguments),
    /// Continue a text with a model
    #[command(after_help = EXIT_CODES)]
    Generate(GenerateArguments),
    /// Compute logits, loss and gradients of given sequences, for comparison with other programs
    #[command(after_help = format!("{FORWARD_FORMAT}\n\n{EXIT_CODES}"))]
    Forward(ForwardArguments),
    /// Import a Hugging Face checkpoint as a run folder
    #[command(after_help = EXIT_CODES)]
    Import(ImportArguments),
    /// Export a run folder as a Hugging Face checkpoint
    #[command(after_help = EXIT_CODES)]
    Export(ExportArguments),
    /// List the built-in runs: published models and a small version of each
    #[command(after_help = EXIT_CODES)]
    Presets(PresetsArguments),
    /// Tokenize text once, for many runs
    #[command(subcommand)]
    Data(DataCommand),
    /// Download a run from an object store: its newest checkpoint and its files
    #[command(after_help = EXIT_CODES)]
    Fetch(FetchArguments),
    /// Show the content of a checkpoint, verify its hashes, or compare two checkpoints
    #[command(after_help = EXIT_CODES)]
    Inspect(InspectArguments),
    /// Show why a run failed: rank, host, step, instruction and cause
    #[command(after_help = format!("{BLAME_HELP}\n\n{EXIT_CODES}"))]
    Blame(BlameArguments),
    /// List the hardware and libraries of this machine: found, used and missing
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArguments),
    /// Initialise a library of MPI and print its answers, for `doctor`
    #[command(hide = true)]
    MpiAnswers(MpiAnswersArguments),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArguments),
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArguments {
    /// The run: a run file, and changes to it.
    #[command(flatten)]
    pub run: RunArguments,
    /// Resume the run in this folder, or at this address of a store, from its newest valid checkpoint; --set may change
    /// its layout
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with = "file")]
    pub resume: Option<PathBuf>,
    /// Start from the weights in this Hugging Face folder, run folder or checkpoint. The run file must omit [model] or
    /// agree with them
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub from: Option<PathBuf>,
    /// Replace a finished run in the run folder; by default it is renamed and kept
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Write the time of every instruction of the last step to this file, for Perfetto, chrome://tracing or simulate
    /// --against
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object per step instead of a line of text
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
}

impl TrainArguments {
    /// The training that they ask for.
    pub fn spec(&self) -> TrainSpec {
        let origin = match (&self.resume, &self.from) {
            (Some(folder), _) => Origin::Checkpoint(folder.clone()),
            (None, Some(folder)) => Origin::Weights(folder.clone()),
            (None, None) => Origin::Seed,
        };
        let earlier = if self.overwrite { Earlier::Replaced } else { Earlier::Kept };
        TrainSpec { run: self.run.run_file(), origin, earlier, trace: self.trace.clone() }
    }
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The run: a run file, and changes to it.
    #[command(flatten)]
    pub run: RunArguments,
    /// Also plan every smaller batch of a growing batch; by default only the full batch is planned
    #[arg(long, conflicts_with = "other")]
    pub ramp: bool,
    /// Check the programs of all ranks: groups, shards, sequences and deadlocks; by default one rank of each stage
    /// represents its peers
    #[arg(long, conflicts_with = "other")]
    pub all_ranks: bool,
    /// Compare memory with the accelerators of this cluster (a built-in profile or a file) instead of this machine
    #[arg(long, value_name = "NAME|FILE.toml", conflicts_with = "other")]
    pub cluster: Option<String>,
    /// Draw the ranks on the hosts of this file; the default is the hosts of the launcher
    #[arg(long, value_name = "FILE", conflicts_with_all = ["other", "cluster"])]
    pub hosts: Option<PathBuf>,
    /// Check a run that starts from these weights, as train --from does
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["other", "cluster", "hosts"])]
    pub from: Option<PathBuf>,
    /// A second run file: show the equality class of the two layouts
    #[arg(value_name = "OTHER.toml")]
    pub other: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Two layouts of one run.
#[derive(Debug, Args)]
pub struct PairArguments {
    /// Run file of the first layout
    #[arg(value_name = "A.toml")]
    pub first: PathBuf,
    /// Run file of the second layout; it may differ in [parallelism], [run], train.sums and train.offload only
    #[arg(value_name = "B.toml")]
    pub second: PathBuf,
    /// Number of steps to run
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Set a key of both run files; repeatable, the last value counts
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
    /// Use train.sums = "exact" in both runs: the same bits however sequences are grouped
    #[arg(long)]
    pub exact: bool,
    /// Train on this text instead of the text of the run files
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub struct ProveArguments {
    /// The two layouts.
    #[command(flatten)]
    pub pair: PairArguments,
    /// Exit with code 1 where losses, weights or gradients have no bound
    #[arg(long)]
    pub strict: bool,
}

impl PairArguments {
    /// The two runs.
    pub fn runs(&self) -> [RunFile; 2] {
        let exact = self.exact.then(|| "train.sums=exact".to_string());
        let overrides: Vec<String> = self.overrides.iter().cloned().chain(exact).collect();
        [&self.first, &self.second].map(|file| RunFile {
            file: Some(file.clone()),
            overrides: overrides.clone(),
            text: self.data.clone(),
        })
    }

    /// [`PairArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

impl CheckArguments {
    /// [`CheckArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The run: a run file, and changes to it.
    #[command(flatten)]
    pub run: RunArguments,
    /// Show the mesh coordinates and the program of this rank
    #[arg(long, value_name = "RANK")]
    pub rank: Option<usize>,
    /// Draw the ranks on the hosts of this file; the default is the hosts of the launcher
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Print every instruction of the rank with the values that it reads, writes and frees
    #[arg(long, requires = "rank")]
    pub step: bool,
    /// Draw the ranks of each expert as a picture in this file
    #[arg(long, value_name = "FILE.svg", conflicts_with = "rank")]
    pub svg: Option<PathBuf>,
}

/// Arguments of `presets`.
#[derive(Debug, Args)]
pub struct PresetsArguments {
    /// Compare the predicted step of each published layout with the fastest layout that plan finds
    #[arg(long)]
    pub compare: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A checkpoint, or a run folder for its newest checkpoint
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// List all files, all tensors with their pieces, and the run file
    #[arg(long, conflicts_with_all = ["verify", "diff"])]
    pub all: bool,
    /// Verify the hashes of all bytes
    #[arg(long)]
    pub verify: bool,
    /// Compare the values with this checkpoint, which may have another layout
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "verify")]
    pub diff: Option<PathBuf>,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

impl DoctorArguments {
    /// [`DoctorArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Arguments of `mpi-answers`.
#[derive(Debug, Args)]
pub struct MpiAnswersArguments {
    /// The library
    pub library: PathBuf,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}
