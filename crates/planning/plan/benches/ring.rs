//! The communication of a ring that attention does not hide, over a link of a fixed rate, and what `simulate` predicts:
//! `cargo bench -p plan --bench ring`.
//!
//! Two ranks of a core each share the sequences of a Llama of 12 million parameters of `bench/compare`. A ring passes
//! its blocks inside of layers, so a trace has no span for them: what is exposed is the time by which the link makes a
//! step longer. The reduction of gradients, a tenth of the bytes, is part of it on both sides: where it overlaps, it
//! shares the link with the shifts of a run, but not with those of `simulate`. Steps with and without the link take
//! turns. `simulate` has the same link, and one without latency that is so fast that its time is nothing. Shifts are in
//! line with attention, and with `parallelism.overlap` at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::Cluster;
use comm::paced::{Pace, Paced, PacedNetwork};
use comm::{Timeouts, Transport};
use config::RunConfig;
use plan::PreparedStep;
use plan::machine::measure;
use sync::{into_inner, lock};
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, Setup, StepReport, StopRequest, ThreadEngine, queued_streams, run};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/compare/llama_12m_65536.toml");

const KEYS: [&str; 6] = [
    "parallelism.cp=2",
    "parallelism.cp_kind=ring",
    "model.context=2048",
    "train.sequence_length=2048",
    "train.global_batch=6",
    "run.threads_per_rank=1",
];

/// The rates at which a rank sends: the slower one makes communication longer than computing.
const GB_PER_S: [f64; 2] = [0.2, 0.05];

const LATENCY: Duration = Duration::from_micros(20);
const NO_LINK: Pace = Pace { bytes_per_second: 1e18, latency: Duration::ZERO };

const WARM_UP: u32 = 1;
const TIMED: u32 = 2;
const ROUNDS: usize = 3;

#[derive(Default)]
struct Stopwatch(Mutex<Vec<f64>>);

impl Observer for Stopwatch {
    fn step(&self, report: &StepReport) -> StopRequest {
        lock(&self.0).push(report.wall.as_secs_f64());
        if report.step + 1 < WARM_UP + TIMED { StopRequest::None } else { StopRequest::Stop }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds of a step over `pace`.
fn measured(setup: &Setup, pace: Pace) -> f64 {
    let network = PacedNetwork::new(pace);
    let patient = Timeouts::new(Duration::from_secs(600));
    let engine = ThreadEngine::new(setup.groups(), patient)
        .with_queues(queued_streams(&setup.parallelism))
        .wrapped(|inner| Arc::new(Paced::new(inner, Arc::clone(&network))) as Arc<dyn Transport>);
    let text = ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every };
    let watch = Stopwatch::default();
    run(setup, &engine, Ports::new(&text, &watch)).expect("a run");
    median(into_inner(watch.0).split_off(WARM_UP as usize))
}

/// Seconds of a step over `pace` by `simulate`.
fn simulated(step: &PreparedStep, machine: &Cluster, pace: Pace) -> f64 {
    let mut cluster = machine.clone();
    for link in [&mut cluster.node.link, &mut cluster.network] {
        link.gb_per_s = pace.bytes_per_second * 1e-9;
        link.latency_us = pace.latency.as_secs_f64() * 1e6;
    }
    step.on(&cluster).expect("a prediction").step_ns() as f64 * 1e-9
}

/// Prints a row for each rate.
fn compare(overlap: bool, machine: &Cluster) {
    let toml = std::fs::read_to_string(RUN).expect("a run file");
    let keys = KEYS.map(String::from).into_iter().chain([format!("parallelism.overlap={overlap}")]);
    let config = RunConfig::load(RUN, &toml, &keys.collect::<Vec<_>>());
    let config = config.unwrap_or_else(|problems| panic!("{problems:#?}"));
    let setup = Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone()).expect("a plan");
    let step = PreparedStep::new(&config.model, &config.parallelism, &config.train, None).expect("a step");
    for rate in GB_PER_S {
        let pace = Pace { bytes_per_second: rate * 1e9, latency: LATENCY };
        let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [NO_LINK, pace].map(|pace| measured(&setup, pace))).collect();
        let [without, with] = [0, 1].map(|side| median(rounds.iter().map(|round| round[side]).collect()));
        let exposed = median(rounds.iter().map(|[without, with]| with - without).collect());
        let expected = simulated(&step, machine, pace) - simulated(&step, machine, NO_LINK);
        println!(
            "{} | {rate} | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} ms | {:.3}",
            if overlap { "during attention" } else { "in line" },
            1e3 * without,
            1e3 * with,
            1e3 * exposed,
            1e3 * expected,
            exposed / expected
        );
    }
}

fn main() {
    let machine = measure().expect("a profile");
    println!("shifts | GB/s | step without a link | step | exposed | simulate's | exposed over simulate's");
    compare(false, &machine);
    compare(true, &machine);
}
