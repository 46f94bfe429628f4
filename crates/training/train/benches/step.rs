//! Seconds of a training step, and where they go: `cargo bench -p train --bench step [-- RUN.toml ...
//! [section.key=value ...]]`.
//!
//! Without a run file those of `bench/compare` are measured; shares are those of what the same cores multiply in
//! registers, and copy. With `--paced` one run waits for a line of standard input before each step and prints the
//! step's seconds, so that two programs can take turns on the same cores.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm::Timeouts;
use config::{GpuGraphs, RunConfig, RunSpec, flops_per_token};
use device::{Cost, Op};
use sync::lock;
use testkit::intercepted::intercept_ops;
use testkit::layout::engine;
use testkit::wrapped_engine::WrappedEngine;
use timed::{FOLDER, Length, load, median, seconds_of_steps, text};
use train::{
    EngineOptions, GpuPlaces, GraphNotice, GraphUse, Observer, Ports, RunDevice, Setup, StepReport, StopRequest,
    open_engine,
};

mod timed;

const RUNS: [&str; 3] = ["gpt_12m.toml", "gpt2_124m_short.toml", "gpt2_124m.toml"];
const LENGTH: Length = Length { warm_up: 2, timed: 5 };

/// Calls, work and time of one kind of operation, where products of other shapes are other kinds.
#[derive(Clone, Copy, Default)]
struct Spent {
    calls: u64,
    cost: Cost,
    time: Duration,
}

type Breakdown = Arc<Mutex<BTreeMap<String, Spent>>>;

/// Waits for a line before each step.
struct Paced;

impl Paced {
    fn wait(&self) -> StopRequest {
        match std::io::stdin().lock().read_line(&mut String::new()) {
            Ok(bytes) if bytes > 0 => StopRequest::None,
            Ok(_) | Err(_) => StopRequest::Stop,
        }
    }
}

impl Observer for Paced {
    fn step(&self, report: &StepReport) -> StopRequest {
        say(&format!("{{\"seconds\": {}, \"loss\": {}}}", report.wall.as_secs_f64(), report.loss));
        self.wait()
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("someone reads");
}

/// The named line of this process's status in bytes; 0 where the system does not tell.
fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes =
        status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| 1024 * kibibytes)
}

fn run_paced(setup: &Setup, run: &RunSpec) {
    say(&format!("{{\"before_bytes\": {}}}", status_bytes("VmRSS:")));
    if Paced.wait() == StopRequest::None {
        // Ranks wait for each other while the other side has its turn.
        let timeouts = Timeouts::new(Duration::from_secs(86_400));
        let options = EngineOptions { timeouts, queued: &[], threads_per_rank: run.threads_per_rank, library: None };
        let engine = open_engine(setup.groups(), options, &device(run));
        train::run(setup, &*engine, Ports::new(&text(setup), &Paced)).expect("a run");
    }
    say(&format!("{{\"peak_bytes\": {}}}", status_bytes("VmHWM:")));
}

/// Graphs as in a run; a driver that has none ends the measurement.
fn graphs(graphs: GpuGraphs) -> GraphUse {
    match graphs {
        GpuGraphs::Off => GraphUse::Off,
        GpuGraphs::Auto => GraphUse::Auto(Arc::new(GraphNotice::new(|line| panic!("{line}")))),
    }
}

/// The device of the run; NVIDIA's libraries are in the folders of `PLEACH_CUDA`, or the loader's.
fn device(run: &RunSpec) -> RunDevice {
    let libraries = std::env::var_os("PLEACH_CUDA").map_or(vec![], |paths| std::env::split_paths(&paths).collect());
    let places = GpuPlaces { libraries, code: std::env::temp_dir().join("pleach-kernels"), carried: &[] };
    RunDevice::open(run.device, run.gpus, graphs(run.gpu_graphs), &places).expect("a device")
}

/// Seconds of the timed steps while the operations of all steps and ranks are timed, which takes some time itself.
fn seconds_with_breakdown(setup: &Setup, threads: usize, breakdown: &Breakdown) -> Vec<f64> {
    let wrap = |_, rank| {
        let breakdown = Arc::clone(breakdown);
        intercept_ops(rank, move |device, stream, op| {
            let started = Instant::now();
            device.submit(stream, op)?;
            note(&breakdown, op, started.elapsed());
            Ok(())
        })
    };
    seconds_of_steps(setup, &WrappedEngine::with_threads(setup, threads, &wrap), LENGTH)
}

/// A product with its sizes; a fused operation with the names of those that it stands for.
fn name(op: &Op) -> String {
    let of_one = |op: Op| {
        let Op::MatMul { orientation, out, .. } = op else { return op.name().into() };
        let (m, n) = (out.rows, out.cols);
        format!("mat_mul {orientation:?} {m} x {n} x {}", op.cost().multiply_adds as usize / (m * n))
    };
    op.unfused().map(of_one).collect::<Vec<String>>().join(" + ")
}

fn note(breakdown: &Breakdown, op: &Op, time: Duration) {
    let (cost, mut breakdown) = (op.cost(), lock(breakdown));
    let name = name(op);
    let spent = breakdown.entry(name).or_default();
    spent.calls += 1;
    spent.time += time;
    spent.cost.multiply_adds += cost.multiply_adds;
    spent.cost.moved_bytes += cost.moved_bytes;
}

/// A rate in billions, and what part of the machine's it is.
fn share(rate: f64, of_machine: f64, unit: &str) -> String {
    format!("{:8.1} {unit} ({:.0} %)", rate / 1e9, 100.0 * rate / of_machine)
}

fn report(name: &str, config: &RunConfig, setup: &Setup) {
    let threads = config.run.threads_per_rank;
    let cores = config.parallelism.world_size() * threads;
    let (peak, copied) = (cpu::peak::flops_per_second(cores), cpu::peak::copy_bytes_per_second(cores));
    let engine = engine(setup, threads);
    let seconds = median(seconds_of_steps(setup, &*engine, LENGTH));
    let tokens = (config.train.global_batch * config.train.sequence_length) as f64;
    let flops = tokens * flops_per_token(&config.model, config.train.sequence_length) / seconds;
    println!(
        "{name}: {:.1} ms a step, {:.0} tokens/s, {:.1} GFLOP/s, {:.0} % of the peak of {cores} cores",
        1e3 * seconds,
        tokens / seconds,
        flops / 1e9,
        100.0 * flops / peak
    );
    let breakdown = Breakdown::default();
    let timed = median(seconds_with_breakdown(setup, threads, &breakdown));
    let steps = f64::from(LENGTH.warm_up + LENGTH.timed);
    let mut spent: Vec<(String, Spent)> = lock(&breakdown).clone().into_iter().collect();
    spent.sort_by_key(|(_, spent)| std::cmp::Reverse(spent.time));
    for (name, Spent { calls, cost, time }) in spent {
        let seconds = time.as_secs_f64();
        let rate = match cost.multiply_adds {
            0 => share(cost.moved_bytes as f64 / seconds, copied, "GB/s"),
            multiply_adds => share(2.0 * multiply_adds as f64 / seconds, peak, "GFLOP/s"),
        };
        let (ms, calls) = (1e3 * seconds / steps, calls as f64 / steps);
        println!("  {name:30} {ms:9.2} ms {:5.1} % {calls:7.0} calls {rate}", ms / timed / 10.0);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_paced = arguments.iter().any(|argument| argument == "--paced");
    let overrides: Vec<String> = arguments.iter().filter(|argument| argument.contains('=')).cloned().collect();
    let mut files: Vec<String> = arguments.into_iter().filter(|argument| argument.ends_with(".toml")).collect();
    if files.is_empty() {
        files = RUNS.map(|file| format!("{FOLDER}/{file}")).into();
    }
    for file in files {
        let (config, setup) = load(&file, &overrides);
        if is_paced {
            return run_paced(&setup, &config.run);
        }
        report(&file, &config, &setup);
    }
}
