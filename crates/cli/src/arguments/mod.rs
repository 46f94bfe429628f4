//! What can be written on the command line. The comments here are the help pages.

pub mod blame;
pub mod cluster;
pub mod completions;
pub mod hugging_face;
pub mod inference;
pub mod launch;
pub mod report;
pub mod software_value;
pub mod unknown_option;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::arguments::blame::{BLAME_HELP, BlameArguments};
use crate::arguments::cluster::{ClusterCommand, PlanArguments, SimulateArguments, ValidateArguments};
use crate::arguments::hugging_face::{ExportArguments, ImportArguments};
use crate::arguments::inference::{EvalArguments, FORWARD_FORMAT, ForwardArguments, GenerateArguments};
use crate::arguments::launch::{LAUNCH_HELP, LaunchArguments};
use crate::arguments::report::ReportArguments;
use crate::check::verdict::Planned;
use crate::run::kept_run::Earlier;

/// What the command's exit says.
pub const EXIT_CODES: &str = "Exit codes:
  0    done
  1    the work failed
  2    the input cannot be used: arguments, run file, text or checkpoint
  130  ended by Ctrl-C; 143 by SIGTERM, 138 by SIGUSR1 (128 + the signal's number)";

/// As [`EXIT_CODES`], where the work is to hold a promise.
const PROVE_EXIT_CODES: &str = "Exit codes:
  0    the promise holds
  1    it does not, or a run failed
  2    the input cannot be used: arguments, run files or text
  130  ended by Ctrl-C; 143 by SIGTERM (128 + the signal's number)";

const COMPLETIONS_HELP: &str = "Where shells look for it:
  bash  pleach completions bash > ~/.local/share/bash-completion/completions/pleach
  zsh   pleach completions zsh > a folder of $fpath, under the name _pleach
  fish  pleach completions fish > ~/.config/fish/completions/pleach.fish";

/// Train language models with data, tensor and pipeline parallelism at once.
#[derive(Debug, Parser)]
#[command(name = "pleach", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without a run file, a small GPT on eight ranks
    #[command(after_help = EXIT_CODES)]
    Train(TrainArguments),
    /// Start a command as several processes, on this machine or on several by ssh, and end them together
    #[command(after_help = format!("{LAUNCH_HELP}\n\n{EXIT_CODES}"))]
    Launch(LaunchArguments),
    /// Start and supervise the processes of one host, as its standard input says
    #[command(hide = true)]
    LaunchAgent,
    /// End the processes of a launcher that was killed, as the standard input says
    #[command(hide = true)]
    LaunchGuard,
    /// Check a run without starting it: report every error, or its size, ranks and memory
    #[command(after_help = EXIT_CODES)]
    Check(CheckArguments),
    /// Run two layouts of one run, measure their distance and compare it with the promised bound
    #[command(after_help = PROVE_EXIT_CODES)]
    Prove(PairArguments),
    /// Find the first value that differs between two layouts of one run: step, unit, element and ranks
    #[command(after_help = EXIT_CODES)]
    Diff(PairArguments),
    /// Show the mesh, stages and pipeline of a run, or the instructions of one rank
    #[command(after_help = EXIT_CODES)]
    Explain(ExplainArguments),
    /// Predict the time, its breakdown and the memory of a step on a cluster, without running it
    #[command(after_help = EXIT_CODES)]
    Simulate(SimulateArguments),
    /// Find the fastest layouts of a run on a cluster
    #[command(after_help = EXIT_CODES)]
    Plan(PlanArguments),
    /// Predict every row of a table of measured runs, and report the errors of the predictions
    #[command(after_help = EXIT_CODES)]
    Validate(ValidateArguments),
    /// Create profiles of clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Draw runs as one page without network: losses, speed, memory, pipeline, events and run file
    #[command(after_help = EXIT_CODES)]
    Report(ReportArguments),
    /// Measure the loss of a run's weights on held-out text
    #[command(after_help = EXIT_CODES)]
    Eval(EvalArguments),
    /// Continue a text with a run's weights
    #[command(after_help = EXIT_CODES)]
    Generate(GenerateArguments),
    /// Compute logits, loss and gradients of given sequences, for comparison with other programs
    #[command(after_help = format!("{FORWARD_FORMAT}\n\n{EXIT_CODES}"))]
    Forward(ForwardArguments),
    /// Import a Hugging Face folder as a run folder
    #[command(after_help = EXIT_CODES)]
    Import(ImportArguments),
    /// Export a run folder as a Hugging Face folder
    #[command(after_help = EXIT_CODES)]
    Export(ExportArguments),
    /// List the built-in runs: published models with their layouts and recipes, and a small version of each
    #[command(after_help = EXIT_CODES)]
    Presets(PresetsArguments),
    /// Tokenize text once, for many runs
    #[command(subcommand)]
    Data(crate::convert::data::DataCommand),
    /// Show the content of a checkpoint, verify its hashes, or compare it with another one
    #[command(after_help = EXIT_CODES)]
    Inspect(InspectArguments),
    /// Show why a run failed: rank, host, step, instruction and cause, with the last instructions of every rank
    #[command(after_help = format!("{BLAME_HELP}\n\n{EXIT_CODES}"))]
    Blame(BlameArguments),
    /// List the hardware of this machine, the features in use and the missing ones
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArguments),
    /// Initialise a library of MPI and print its answers, for `doctor`
    #[command(hide = true)]
    MpiAnswers(MpiAnswersArguments),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArguments),
}

/// Which run is meant.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Run file: TOML with the sections [model], [parallelism], [train], [data] and [run]; every key has a default. Or preset:NAME
    #[arg(value_name = "RUN.toml")]
    pub file: Option<PathBuf>,
    /// Set a key of the run file, e.g. --set parallelism.dp=4; may be given many times, the last one wins
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
    /// Train on this text instead of the built-in text: a UTF-8 file, JSON lines, a folder of them, or a token file
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
}

impl RunArguments {
    /// Files that the arguments name, which an output must not replace.
    pub fn inputs(&self) -> Vec<PathBuf> {
        self.file.iter().chain(&self.data).cloned().collect()
    }
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArguments {
    /// Which run is meant.
    #[command(flatten)]
    pub run: RunArguments,
    /// Resume the run in this folder from its newest valid checkpoint; --set changes its run file, also its layout
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with = "file")]
    pub resume: Option<PathBuf>,
    /// Start from these weights instead of random ones: a Hugging Face folder, a run folder, or a checkpoint. The run file must then
    /// omit [model], or agree with them
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub from: Option<PathBuf>,
    /// Replace a finished run in the folder; by default it is kept under a name with its time
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Record the time of every instruction of the last step in this file, for Perfetto, chrome://tracing or simulate --against
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
    /// [`TrainArguments::overwrite`] as a type.
    pub fn earlier(&self) -> Earlier {
        if self.overwrite { Earlier::Replaced } else { Earlier::Kept }
    }
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Which run is meant.
    #[command(flatten)]
    pub run: RunArguments,
    /// Also plan every smaller batch of a growing batch; by default only the full batch is planned
    #[arg(long, conflicts_with = "other")]
    pub ramp: bool,
    /// Compile every rank by itself, compare groups, shards and sequences over all ranks, and run all programs to their ends;
    /// by default one rank of each stage represents its peers
    #[arg(long, conflicts_with = "other")]
    pub all_ranks: bool,
    /// Judge the run for the accelerators of this cluster, one for each rank, instead of this machine: a built-in profile, or a file
    #[arg(long, value_name = "NAME|FILE.toml", conflicts_with = "other")]
    pub cluster: Option<String>,
    /// Draw the ranks on the hosts of this file; by default on those of the launcher, if it names them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["other", "cluster"])]
    pub hosts: Option<PathBuf>,
    /// Judge a run that starts from these weights, as train --from does; its model is theirs
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["other", "cluster", "hosts"])]
    pub from: Option<PathBuf>,
    /// A second run file: report the equality class of the two layouts
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
    /// Run file of the second, which differs in [parallelism], [run] and train.sums only
    #[arg(value_name = "B.toml")]
    pub second: PathBuf,
    /// Run only this number of steps, which both runs have first
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Set a key of both run files; may be given many times, the last one wins
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
    /// Sum gradients exactly in both (train.sums = "exact"), so that layouts that group sequences differently have the same bits
    #[arg(long)]
    pub exact: bool,
    /// Train on this text instead of the text of the run files
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

impl PairArguments {
    /// The two runs.
    pub fn runs(&self) -> [RunArguments; 2] {
        let exact = self.exact.then(|| "train.sums=exact".to_string());
        let overrides: Vec<String> = self.overrides.iter().cloned().chain(exact).collect();
        [&self.first, &self.second].map(|file| RunArguments {
            file: Some(file.clone()),
            overrides: overrides.clone(),
            data: self.data.clone(),
        })
    }

    /// [`PairArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// For whom a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl CheckArguments {
    /// [`CheckArguments::ramp`] as a type.
    pub fn planned(&self) -> Planned {
        if self.ramp { Planned::EveryBatch } else { Planned::FullBatch }
    }

    /// [`CheckArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Which run is meant.
    #[command(flatten)]
    pub run: RunArguments,
    /// Show the coordinates and the program of this rank
    #[arg(long, value_name = "RANK")]
    pub rank: Option<usize>,
    /// Draw the ranks on the hosts of this file; by default on those of the launcher, if it names them
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Print every instruction of the rank's step, with what it reads, writes and frees
    #[arg(long, requires = "rank")]
    pub step: bool,
}

/// Arguments of `presets`.
#[derive(Debug, Args)]
pub struct PresetsArguments {
    /// Print a page that compares published layouts, simulated, with the fastest that the search finds on the same accelerators
    #[arg(long)]
    pub compare: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A checkpoint, or a run folder, of which the newest checkpoint is used
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// List every file, every tensor with its pieces, and the run file
    #[arg(long, conflicts_with_all = ["verify", "diff"])]
    pub all: bool,
    /// Read everything and verify the hash of every byte
    #[arg(long)]
    pub verify: bool,
    /// Compare its values with those of this checkpoint; the layouts may differ
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
