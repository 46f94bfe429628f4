//! Prints a table of the operations of a step: their bytes and multiply-adds, the times that data sheets of
//! accelerators make of them, and with `--measure` the times on the run's device.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use cluster::Cluster;
use comm::Timeouts;
use config::{RunConfig, TrainSpec};
use device::Numerics;
use mesh::Coord;
use prove::{NoWatch, run_first};
use surveys::kernel_times::table::StepTable;
use surveys::kernel_times::timed_device::{Noted, TimedDevice};
use sync::lock;
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{Engine, EngineOptions, GpuPlaces, GraphUse, MetaEngine, RankEngine, RunDevice, Setup, open_engine};

/// Profiles of the accelerators whose times are predicted.
const PROFILES: [&str; 2] = ["h100-80g-dgx", "h200-141g-dgx"];

/// Print the operations of a step with their times
#[derive(Args)]
pub struct Arguments {
    /// Run files of one rank
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Measures on the run's device
    #[arg(long)]
    measure: bool,
    /// Steps that are run
    #[arg(long, default_value_t = 8)]
    steps: u32,
    /// Set a key of the run file
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Folder of NVIDIA's libraries
    #[arg(long)]
    cuda: Option<PathBuf>,
}

/// Prints them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    arguments.runs.iter().try_for_each(|run| print(run, arguments))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn print(run: &PathBuf, arguments: &Arguments) -> Result<(), String> {
    let toml = std::fs::read_to_string(run)
        .map_err(|error| format!("{} must be a run file, such as bench/gpu/gpt2_124m.toml; {error}", run.display()))?;
    let config = RunConfig::load(&run.display().to_string(), &toml, &arguments.set)
        .map_err(|problems| problems.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    let training = TrainSpec { steps: arguments.steps, ..config.train.clone() };
    let setup = Setup::new(config.model.clone(), config.parallelism.clone(), training).map_err(text)?;
    let noted = Arc::new(Mutex::new(Noted::default()));
    let wrap = |_: Coord, RankEngine { device, memory, communicators }: RankEngine| RankEngine {
        device: Box::new(TimedDevice::new(device, &noted)),
        memory,
        communicators,
    };
    let engine = WrappedEngine::around(engine(&config, &setup, arguments)?, &setup, &wrap);
    let words = ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every };
    run_first(arguments.steps, &setup, &engine, &words, &NoWatch).map_err(text)?;
    let accelerators = PROFILES.map(|profile| {
        let text = cluster::named(profile).ok_or_else(|| format!("{profile} must be a profile"))?;
        Cluster::from_toml(text).map(|cluster| cluster.accelerator).map_err(|error| error.to_string())
    });
    let accelerators = accelerators.into_iter().collect::<Result<Vec<_>, String>>()?;
    let numerics = Numerics::of(setup.train.precision, setup.train.sums);
    let table = StepTable::new(&lock(&noted).steps, accelerators, numerics)?;
    println!("{}\n\n{table}", run.display());
    Ok(())
}

/// The run's device, or one that only takes operations down.
fn engine(config: &RunConfig, setup: &Setup, arguments: &Arguments) -> Result<Box<dyn Engine>, String> {
    if !arguments.measure {
        return Ok(Box::new(MetaEngine::new(setup.groups())));
    }
    let code = std::env::temp_dir().join("pleach-kernels");
    let places = GpuPlaces { libraries: arguments.cuda.iter().cloned().collect(), code, carried: &[] };
    let device = RunDevice::open(config.run.device, config.run.gpus, GraphUse::Off, &places).map_err(text)?;
    let timeouts = Timeouts::new(Duration::from_secs(600));
    let options = EngineOptions { timeouts, queued: &[], threads_per_rank: 1, library: None };
    Ok(open_engine(setup.groups(), options, &device))
}
