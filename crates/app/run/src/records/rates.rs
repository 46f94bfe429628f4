//! How fast a run is, how much of the machine it uses, and how long it still takes.

use std::time::{Duration, Instant};

use config::{BatchSizes, DeviceChoice, Precision, Products, RunConfig, flops_per_token};
use train::{RouterReport, StepReport, processor};

use crate::memory::taken::resident_peak_bytes;
use crate::records::cpu_time::cpu_time;

/// Hardware that this process computes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Cores that the ranks may use: no more than they have threads.
    pub cores: usize,
    /// FLOP/s in the products of the run: of these cores as measured, of GPUs by their data sheets; `None` where they
    /// have none.
    pub peak_flops: Option<f64>,
}

impl Capacity {
    /// Measures for some milliseconds the instructions that the products of `config` are computed with, in `threads`
    /// threads; GPUs have the peak `of_gpus`.
    pub fn measure(config: &RunConfig, threads: usize, of_gpus: Option<f64>) -> Capacity {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(threads);
        let peak_flops = match config.run.device {
            DeviceChoice::Cpu => Some(peak_flops(config.train.precision, cores)),
            DeviceChoice::Cuda => of_gpus,
        };
        Capacity { cores, peak_flops }
    }
}

/// Products of bf16 terms that a product of fp32 numbers is the sum of.
const TERM_PRODUCTS: f64 = 6.0;

/// FLOP/s of `cores` cores in tiles of AMX, for bf16x3 products where the processor has them, or in vectors.
fn peak_flops(precision: Precision, cores: usize) -> f64 {
    let tiles = match precision.products() {
        Products::Pairs => processor::core_tile_flops_per_second().map(|core| core * cores as f64),
        Products::Chained | Products::Blocks16 | Products::Blocks8 | Products::Device => None,
    };
    match (tiles, precision) {
        (None, _) => processor::flops_per_second(cores),
        (Some(tiles), Precision::Fp32(_)) => tiles / TERM_PRODUCTS,
        (Some(tiles), Precision::Bf16(_) | Precision::Fp16(..)) => tiles,
    }
}

/// Figures of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Tokens per second of the step, over all ranks.
    pub tokens_per_second: f64,
    /// [`flops_per_token`] times that.
    pub flops: f64,
    /// Share of the measured peak, at most 1: a core that becomes faster than it was measured raises its peak. `None`
    /// without a peak.
    pub peak_share: Option<f64>,
    /// Share of their time that the cores did not work for this process since the step before: 1 - CPU seconds / (wall
    /// seconds x cores). `None` where CPU time is not known.
    pub idle_share: Option<f64>,
    /// The most memory that this process has held so far; `None` where the system does not report it.
    pub resident_bytes: Option<u64>,
    /// Tokens of all steps until now, also of those before a resumption.
    pub total_tokens: u64,
    /// Sequences of all these steps, as passes over the text.
    pub epoch: f64,
    /// [`RouterReport::rank_load`] of the step, where several ranks divide experts.
    pub expert_rank_load: Option<f64>,
    /// Time until the last step, if the rest goes like the steps so far.
    pub left: Duration,
}

/// Turns reports into rates.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    batches: BatchSizes,
    sequence_length: usize,
    sequences_per_epoch: u64,
    flops_per_token: f64,
    capacity: Capacity,
    /// Ranks that divide experts.
    expert_ranks: usize,
    expert_rank_load: Option<f64>,
    steps: u32,
    /// Steps that were measured.
    measured: u32,
    started: Instant,
    /// The end of the step before, with the CPU time until then.
    before: (Instant, Option<Duration>),
}

impl Meter {
    /// A meter that starts now, for a text of `sequences` sequences.
    pub fn start(config: &RunConfig, sequences_per_epoch: u64, capacity: Capacity) -> Meter {
        let now = Instant::now();
        Meter {
            batches: config.train.batches(),
            sequence_length: config.train.sequence_length,
            sequences_per_epoch,
            flops_per_token: flops_per_token(&config.model, config.train.sequence_length),
            capacity,
            expert_ranks: config.parallelism.ep * config.parallelism.degrees.tp,
            expert_rank_load: None,
            steps: config.train.steps,
            measured: 0,
            started: now,
            before: (now, cpu_time()),
        }
    }

    /// Takes the choices of the step that ends next.
    pub fn routers(&mut self, report: &RouterReport) {
        self.expert_rank_load = (self.expert_ranks > 1).then(|| report.rank_load(self.expert_ranks));
    }

    /// The figures of the step that has just ended.
    pub fn step(&mut self, report: &StepReport) -> Rates {
        self.step_at(report, Instant::now(), cpu_time())
    }

    fn step_at(&mut self, report: &StepReport, now: Instant, cpu: Option<Duration>) -> Rates {
        self.measured += 1;
        let (then, cpu_then) = std::mem::replace(&mut self.before, (now, cpu));
        let wall_seconds = (now - then).as_secs_f64().max(1e-9);
        let idle_share = cpu.zip(cpu_then).map(|(cpu, cpu_then)| {
            let cpu_seconds = cpu.saturating_sub(cpu_then).as_secs_f64();
            // Clocks are read one after the other, so a busy step may come out a little below 0.
            (1.0 - cpu_seconds / (wall_seconds * self.capacity.cores as f64)).clamp(0.0, 1.0)
        });
        let tokens_per_second = report.tokens as f64 / report.wall.as_secs_f64().max(1e-9);
        let flops = tokens_per_second * self.flops_per_token;
        let peak = self.capacity.peak_flops.map(|peak| peak.max(flops));
        self.capacity.peak_flops = peak;
        let peak_share = peak.map(|peak| flops / peak.max(1.0));
        let left_steps = f64::from(self.steps.saturating_sub(report.step));
        let seconds_per_step = (now - self.started).as_secs_f64() / f64::from(self.measured);
        // Steps are counted from 0 there, so this one has ended where the next one begins.
        let sequences = self.batches.at(report.step).first_sequence;
        Rates {
            tokens_per_second,
            flops,
            peak_share,
            idle_share,
            resident_bytes: resident_peak_bytes(),
            total_tokens: sequences * self.sequence_length as u64,
            epoch: sequences as f64 / self.sequences_per_epoch.max(1) as f64,
            expert_rank_load: self.expert_rank_load.take(),
            left: Duration::from_secs_f64(left_steps * seconds_per_step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::step_line::tests::report;

    #[test]
    fn rates_are_those_of_the_last_step_and_the_rest_goes_like_all() {
        let capacity = Capacity { cores: 2, peak_flops: Some(1e11) };
        let mut meter = Meter::start(&RunConfig::quick_start(), 64, capacity);
        let start = meter.started;
        meter.before = (start, Some(Duration::ZERO));
        let report = |step| StepReport { step, wall: Duration::from_millis(500), ..report() };
        let second = Duration::from_secs(1);
        let rates = meter.step_at(&report(1), start + second, Some(second));
        assert_eq!((rates.tokens_per_second, rates.idle_share, rates.left), (4096.0, Some(0.5), 239 * second));
        assert_eq!(rates.flops, 4096.0 * flops_per_token(&RunConfig::quick_start().model, 128));
        assert_eq!(rates.peak_share, Some(rates.flops / 1e11));
        assert_eq!((rates.total_tokens, rates.epoch), (2048, 0.25));
        let rates = meter.step_at(&report(2), start + 3 * second, Some(Duration::from_secs(6)));
        assert_eq!((rates.idle_share, rates.left), (Some(0.0), 357 * second));
        // A step above the measured peak is all of the peak, and those after it are shares of what it has shown.
        let flops = rates.flops;
        meter.capacity.peak_flops = Some(flops / 2.0);
        let rates = meter.step_at(&report(3), start + 4 * second, None);
        assert_eq!((rates.peak_share, meter.capacity.peak_flops), (Some(1.0), Some(flops)));
        meter.capacity.peak_flops = None;
        assert_eq!(meter.step_at(&report(4), start + 5 * second, None).peak_share, None);
    }
}
