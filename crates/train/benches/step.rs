//! Seconds of a training step, and where they go: `cargo bench -p train --bench step [-- RUN.toml ... [section.key=value ...]]`.
//!
//! Without a run file those of `bench/compare` are measured. With `--paced` one run waits for a line of standard input before each step and
//! prints the step's seconds, so that two programs can take turns on the same cores.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comm::Timeouts;
use device::{Cost, Op};
use prove::intercepted::intercept_ops;
use prove::{Labels, ProofText, WrappedEngine, thread_engine};
use spec::{RunConfig, flops_per_token};
use train::{Observer, Ports, Setup, StepReport, ThreadEngine, Wish};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/compare");
const RUNS: [&str; 3] = ["gpt_12m.toml", "gpt2_124m_short.toml", "gpt2_124m.toml"];
/// Steps that are timed, and those before them.
const STEPS: u32 = 5;
const WARM_UP: u32 = 2;

/// Calls, work and time of one kind of operation.
#[derive(Clone, Copy, Default)]
struct Spent {
    calls: u64,
    cost: Cost,
    time: Duration,
}

type Breakdown = Arc<Mutex<BTreeMap<String, Spent>>>;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the seconds of each step, and ends the run after the last that is timed.
#[derive(Default)]
struct Stopwatch {
    seconds: Mutex<Vec<f64>>,
}

impl Observer for Stopwatch {
    fn step(&self, report: &StepReport) -> Wish {
        held(&self.seconds).push(report.wall.as_secs_f64());
        if report.step + 1 < WARM_UP + STEPS { Wish::Continue } else { Wish::Stop }
    }
}

/// Waits for a line before each step.
struct Paced;

impl Paced {
    fn wait(&self) -> Wish {
        match std::io::stdin().lock().read_line(&mut String::new()) {
            Ok(bytes) if bytes > 0 => Wish::Continue,
            Ok(_) | Err(_) => Wish::Stop,
        }
    }
}

impl Observer for Paced {
    fn step(&self, report: &StepReport) -> Wish {
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

fn text(setup: &Setup) -> ProofText {
    ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every }
}

fn run_paced(setup: &Setup, threads: usize) {
    say(&format!("{{\"before_bytes\": {}}}", status_bytes("VmRSS:")));
    if Paced.wait() == Wish::Continue {
        // Ranks wait for each other while the other side has its turn.
        let patient = Timeouts { wait: Duration::from_secs(86_400) };
        let engine = ThreadEngine::new(setup.mesh, patient).with_threads_per_rank(threads);
        train::run(setup, &engine, Ports::new(&text(setup), &Paced)).expect("a run");
    }
    say(&format!("{{\"peak_bytes\": {}}}", status_bytes("VmHWM:")));
}

/// Seconds of the timed steps; `breakdown` gets the operations of all steps and ranks, which take some time to be timed.
fn seconds_of_steps(setup: &Setup, threads: usize, breakdown: Option<&Breakdown>) -> Vec<f64> {
    let (text, stopwatch) = (text(setup), Stopwatch::default());
    let ports = Ports::new(&text, &stopwatch);
    let ended = match breakdown.cloned() {
        None => train::run(setup, &thread_engine(setup).with_threads_per_rank(threads), ports),
        Some(breakdown) => {
            let wrap = |_, rank| {
                let breakdown = Arc::clone(&breakdown);
                intercept_ops(rank, move |device, stream, op| {
                    let started = Instant::now();
                    device.submit(stream, op)?;
                    note(&breakdown, op, started.elapsed());
                    Ok(())
                })
            };
            train::run(setup, &WrappedEngine::new(setup, &wrap).with_threads_per_rank(threads), ports)
        }
    };
    ended.expect("a run");
    stopwatch.seconds.into_inner().unwrap_or_else(PoisonError::into_inner).split_off(WARM_UP as usize)
}

fn note(breakdown: &Breakdown, op: &Op, time: Duration) {
    let name =
        if let Op::MatMul { orientation, .. } = op { format!("mat_mul {orientation:?}") } else { op.name().into() };
    let (cost, mut breakdown) = (op.cost(), held(breakdown));
    let spent = breakdown.entry(name).or_default();
    spent.calls += 1;
    spent.time += time;
    spent.cost.multiply_adds += cost.multiply_adds;
    spent.cost.moved_bytes += cost.moved_bytes;
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, config: &RunConfig, setup: &Setup) {
    let threads = config.run.threads_per_rank;
    let cores = config.parallelism.world_size() * threads;
    let peak = cpu::peak::flops_per_second(cores);
    let seconds = median(seconds_of_steps(setup, threads, None));
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
    let timed: f64 = seconds_of_steps(setup, threads, Some(&breakdown)).iter().sum::<f64>() / f64::from(STEPS);
    let steps = f64::from(WARM_UP + STEPS);
    let mut spent: Vec<(String, Spent)> = held(&breakdown).clone().into_iter().collect();
    spent.sort_by_key(|(_, spent)| std::cmp::Reverse(spent.time));
    for (name, Spent { calls, cost, time }) in spent {
        let seconds = time.as_secs_f64();
        let rate = match cost.multiply_adds {
            0 => format!("{:8.1} GB/s", cost.moved_bytes as f64 / seconds / 1e9),
            multiply_adds => format!("{:8.1} GFLOP/s", 2.0 * multiply_adds as f64 / seconds / 1e9),
        };
        let (ms, calls) = (1e3 * seconds / steps, calls as f64 / steps);
        println!("  {name:22} {ms:9.2} ms {:5.1} % {calls:7.0} calls {rate}", ms / timed / 10.0);
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
        let toml = std::fs::read_to_string(&file).expect("a run file");
        let config = RunConfig::load(&file, &toml, &overrides).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let setup = Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone()).expect("a plan");
        if is_paced {
            return run_paced(&setup, config.run.threads_per_rank);
        }
        report(&file, &config, &setup);
    }
}
