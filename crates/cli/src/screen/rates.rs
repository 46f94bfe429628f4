//! How fast a run is, how much of the machine it uses, and how long it still takes.

use std::time::{Duration, Instant};

use config::{RunConfig, flops_per_token};
use train::{StepReport, processor};

use crate::screen::cpu_time::cpu_time;

/// What this process has to compute with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Cores that the ranks may use: no more than they have threads.
    pub cores: usize,
    /// FLOP/s of these cores, as measured.
    pub peak_flops: f64,
}

impl Capacity {
    /// Measures for some milliseconds.
    pub fn measure(threads: usize) -> Capacity {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(threads);
        Capacity { cores, peak_flops: processor::flops_per_second(cores) }
    }
}

/// Figures of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Tokens per second of the step, over all ranks.
    pub tokens_per_second: f64,
    /// [`flops_per_token`] times that.
    pub flops: f64,
    /// Share of the measured peak.
    pub peak_share: f64,
    /// Share of their time that the cores did not work for this process since the step before: 1 - CPU seconds / (wall seconds x cores). `None`
    /// where CPU time is not known.
    pub idle_share: Option<f64>,
    /// Time until the last step, if the rest goes like the steps so far.
    pub left: Duration,
}

/// Turns reports into rates.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    flops_per_token: f64,
    capacity: Capacity,
    steps: u32,
    /// Steps that were measured.
    measured: u32,
    started: Instant,
    /// The end of the step before, with the CPU time until then.
    before: (Instant, Option<Duration>),
}

impl Meter {
    /// A meter that starts now.
    pub fn start(config: &RunConfig, capacity: Capacity) -> Meter {
        let now = Instant::now();
        Meter {
            flops_per_token: flops_per_token(&config.model, config.train.sequence_length),
            capacity,
            steps: config.train.steps,
            measured: 0,
            started: now,
            before: (now, cpu_time()),
        }
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
        let left_steps = f64::from(self.steps.saturating_sub(report.step));
        let seconds_per_step = (now - self.started).as_secs_f64() / f64::from(self.measured);
        Rates {
            tokens_per_second,
            flops,
            peak_share: if self.capacity.peak_flops > 0.0 { flops / self.capacity.peak_flops } else { 0.0 },
            idle_share,
            left: Duration::from_secs_f64(left_steps * seconds_per_step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_step_and_the_rest_goes_like_all() {
        let capacity = Capacity { cores: 2, peak_flops: 1e11 };
        let mut meter = Meter::start(&RunConfig::quick_start(), capacity);
        let start = meter.started;
        meter.before = (start, Some(Duration::ZERO));
        let report = |step| StepReport {
            step,
            loss: 1.0,
            gradient_norm: 1.0,
            loss_scaling: None,
            anomaly: None,
            learning_rate: 1.0,
            tokens: 2048,
            wall: Duration::from_millis(500),
        };
        let second = Duration::from_secs(1);
        let rates = meter.step_at(&report(1), start + second, Some(second));
        assert_eq!((rates.tokens_per_second, rates.idle_share, rates.left), (4096.0, Some(0.5), 239 * second));
        assert_eq!(rates.flops, 4096.0 * flops_per_token(&RunConfig::quick_start().model, 128));
        assert_eq!(rates.peak_share, rates.flops / 1e11);
        let rates = meter.step_at(&report(2), start + 3 * second, Some(Duration::from_secs(6)));
        assert_eq!((rates.idle_share, rates.left), (Some(0.0), 357 * second));
    }
}
