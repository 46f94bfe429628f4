//! The communication that overlap hides on a slow link: `cargo bench -p plan --bench overlap`.
//!
//! Two replicas of a model of 10 million parameters in 12 layers, a core each, over a link on which communication takes
//! half the time of computing. Each layout runs with and without `parallelism.overlap`, in turns; the step that
//! `simulate` predicts for that link is printed as well. Each replica computes one microbatch: with more of them,
//! gradients are reduced during the last one alone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::Cluster;
use comm::paced::{Pace, Paced, PacedNetwork};
use comm::{Timeouts, Transport};
use config::{Overlap, RunConfig};
use device::DeviceError;
use plan::PreparedStep;
use plan::machine::measure;
use sim::{Communication, RankTimes, Trace};
use sync::lock;
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, Setup, StepReport, StopRequest, ThreadEngine, Worker, queued_streams, run};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/compare/gpt_12m.toml");

const MODEL: [&str; 4] = ["model.num_layers=12", "model.hidden=256", "model.num_heads=4", "model.vocabulary=1024"];

const LAYOUTS: [(&str, &[&str]); 3] = [
    ("dp 2", &["parallelism.zero=0"]),
    ("dp 2, ZeRO-2", &["parallelism.zero=2"]),
    ("dp 2, ZeRO-3", &["parallelism.zero=3", "parallelism.prefetch=1"]),
];

/// Communication over computing.
const RATIO: f64 = 0.5;

const WARM_UP: u32 = 2;
const TIMED: u32 = 5;
const ROUNDS: usize = 3;

fn load(keys: &[&str], overlap: Overlap) -> RunConfig {
    let toml = std::fs::read_to_string(RUN).expect("a run file");
    let overlap = format!("parallelism.overlap={}", overlap == Overlap::On);
    let common = ["parallelism.dp=2", "parallelism.microbatch_size=4", "run.threads_per_rank=1"];
    let keys = common.iter().chain(&MODEL).chain(keys);
    let overrides: Vec<String> = keys.map(|key| (*key).to_string()).chain([overlap]).collect();
    RunConfig::load(RUN, &toml, &overrides).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn setup(config: &RunConfig) -> Setup {
    Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone()).expect("a plan")
}

/// Seconds of steps, and what the first rank communicated in the last one.
#[derive(Default)]
struct Stopwatch {
    seconds: Mutex<Vec<f64>>,
    spans: Mutex<Vec<(Instant, Instant)>>,
}

impl Observer for Stopwatch {
    fn step(&self, report: &StepReport) -> StopRequest {
        lock(&self.seconds).push(report.wall.as_secs_f64());
        if report.step + 1 < WARM_UP + TIMED { StopRequest::None } else { StopRequest::Stop }
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.at + 1 == worker.position.program.instrs.len()
            && worker.ports.communicators.world().position() == 0
        {
            *lock(&self.spans) = worker.spans()?.into_iter().flatten().collect();
        }
        Ok(())
    }
}

/// Seconds of the timed steps, and the communication of the last.
fn timed(setup: &Setup, pace: Option<Pace>) -> (Vec<f64>, Communication) {
    let patient = Timeouts::new(Duration::from_secs(600));
    let engine = ThreadEngine::new(setup.groups(), patient).with_queues(queued_streams(&setup.parallelism));
    let network = pace.map(PacedNetwork::new);
    let engine = engine.wrapped(|inner| match &network {
        None => inner,
        Some(network) => Arc::new(Paced::new(inner, Arc::clone(network))) as Arc<dyn Transport>,
    });
    let (text, watch) =
        (ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every }, Stopwatch::default());
    run(setup, &engine, Ports::new(&text, &watch)).expect("a run");
    let spans = lock(&watch.spans).clone();
    let first = spans.iter().map(|(start, _)| *start).min().expect("instructions");
    let ns = |at: Instant| at.duration_since(first).as_nanos() as u64;
    let times = spans.iter().map(|(start, end)| (ns(*start), ns(*end))).collect();
    let rank = RankTimes { number: 0, name: "rank 0".into(), pp: 0, pipeline: 0, times };
    let trace = Trace::new(setup.verified().graph(), &[rank]);
    (lock(&watch.seconds).split_off(WARM_UP as usize), trace.ranks[0].communication())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The step on this machine with that link, and its communication on the rank that computes longest.
fn predicted(config: &RunConfig, machine: &Cluster, pace: Pace) -> (f64, Communication) {
    let mut cluster = machine.clone();
    for link in [&mut cluster.node.link, &mut cluster.network] {
        link.gb_per_s = pace.bytes_per_second * 1e-9;
        link.latency_us = pace.latency.as_secs_f64() * 1e6;
    }
    let step = PreparedStep::new(&config.model, &config.parallelism, &config.train, None).expect("a step");
    let prediction = step.on(&cluster).expect("a prediction");
    let trace = Trace::of_stages(&step.graph, &prediction.times);
    (prediction.step_ns() as f64 * 1e-9, trace.ranks[0].communication())
}

fn main() {
    let machine = measure().expect("a profile");
    println!("layout | overlap | step | simulate | communication | exposed | simulate");
    for (name, keys) in LAYOUTS {
        let configs = [Overlap::Off, Overlap::On].map(|overlap| load(keys, overlap));
        let setups = [setup(&configs[0]), setup(&configs[1])];
        let computing_s = median(timed(&setups[0], None).0);
        let at_1_gb = Pace { bytes_per_second: 1e9, latency: Duration::from_micros(20) };
        let (_, communication) = predicted(&configs[0], &machine, at_1_gb);
        let slower = RATIO * computing_s / (communication.all_ns as f64 * 1e-9);
        let pace = Pace { bytes_per_second: at_1_gb.bytes_per_second / slower, ..at_1_gb };
        let mut runs: [(Vec<f64>, Communication); 2] = Default::default();
        for _ in 0..ROUNDS {
            for (run, setup) in runs.iter_mut().zip(&setups) {
                let (seconds, communication) = timed(setup, Some(pace));
                run.0.extend(seconds);
                run.1 = communication;
            }
        }
        println!("{name}: {:.1} ms without a link, {:.3} GB/s", 1e3 * computing_s, 1e-9 * pace.bytes_per_second);
        for ((seconds, own), config) in runs.into_iter().zip(&configs) {
            let (step_s, of_step) = predicted(config, &machine, pace);
            println!(
                "{name} | {:?} | {:.1} ms | {:.1} ms | {:.1} ms | {:.0} % | {:.0} %",
                config.parallelism.overlap_or_off(),
                1e3 * median(seconds),
                1e3 * step_s,
                1e-6 * own.all_ns as f64,
                100.0 * own.exposed_share(),
                100.0 * of_step.exposed_share(),
            );
        }
    }
}
