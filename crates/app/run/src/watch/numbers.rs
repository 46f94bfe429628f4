//! The numbers of a run in the text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use train::{Anomaly, SaveReport, StepReport, UpdateOutcome};

use crate::records::rates::Rates;

/// The newest value of everything that a run counts or measures.
#[derive(Debug, Default)]
pub struct Numbers {
    steps: u32,
    step: u32,
    loss: Option<f64>,
    gradient_norm: Option<f64>,
    learning_rate: Option<f64>,
    tokens: u64,
    tokens_per_second: Option<f64>,
    flops: Option<f64>,
    step_seconds: Option<f64>,
    at: Option<f64>,
    skipped: u64,
    anomalies: BTreeMap<&'static str, u64>,
    held_out_loss: Option<f64>,
    saved_step: Option<u32>,
    save_seconds: Option<f64>,
    failed_saves: u64,
    stragglers: u64,
}

impl Numbers {
    /// The numbers of a run of `steps` steps, `done` of which were done before.
    pub fn new(done: u32, steps: u32) -> Numbers {
        Numbers { steps, step: done, ..Numbers::default() }
    }

    /// Steps that are done.
    pub fn last_step(&self) -> u32 {
        self.step
    }

    /// Takes the numbers of a step.
    pub fn step(&mut self, report: &StepReport, rates: &Rates) {
        self.step = report.step;
        (self.loss, self.gradient_norm) = (Some(report.loss), Some(report.gradient_norm));
        self.learning_rate = Some(report.learning_rate.into());
        self.tokens += report.tokens as u64;
        (self.tokens_per_second, self.flops) = (Some(rates.tokens_per_second), Some(rates.flops));
        self.step_seconds = Some(report.wall.as_secs_f64());
        self.at = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
        let skipped_by_scale = report.loss_scaling.is_some_and(|scaling| scaling.update != UpdateOutcome::Updated);
        if skipped_by_scale || report.anomaly.is_some_and(|anomaly| anomaly.update != UpdateOutcome::Updated) {
            self.skipped += 1;
        }
        if let Some(report) = &report.anomaly {
            let kind = match report.anomaly {
                Anomaly::NonFinite => "not finite",
                Anomaly::Spike(spike) => spike.kind.name(),
            };
            *self.anomalies.entry(kind).or_default() += 1;
        }
    }

    /// Takes a held-out loss.
    pub fn evaluation(&mut self, loss: f64) {
        self.held_out_loss = Some(loss);
    }

    /// Takes a checkpoint, or its failure.
    pub fn saved(&mut self, report: &SaveReport) {
        match &report.finished.outcome {
            Ok(_) => {
                (self.saved_step, self.save_seconds) = (Some(report.steps), Some(report.wall.as_secs_f64()));
            }
            Err(_) => self.failed_saves += 1,
        }
    }

    /// A rank or a link was named as slow.
    pub fn straggler(&mut self) {
        self.stragglers += 1;
    }

    /// All of it. Numbers that are not known yet are left out.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: Option<f64>| {
            if let Some(value) = value {
                // Writing to a string does not fail.
                let _ =
                    write!(text, "# HELP pleach_{name} {help}\n# TYPE pleach_{name} {kind}\npleach_{name} {value}\n");
            }
        };
        let (gauge, counter) = ("gauge", "counter");
        metric("steps", gauge, "Steps of the run.", Some(self.steps.into()));
        metric("step", gauge, "Steps that are done.", Some(self.step.into()));
        metric("loss", gauge, "Mean training loss of the last step, in nats per token.", self.loss);
        metric("gradient_norm", gauge, "Global norm of its gradient, before clipping.", self.gradient_norm);
        metric("learning_rate", gauge, "Learning rate of the last update.", self.learning_rate);
        metric("tokens_total", counter, "Tokens since this start of the run.", Some(self.tokens as f64));
        metric("tokens_per_second", gauge, "Tokens per second.", self.tokens_per_second);
        metric("flops", gauge, "Floating-point operations per second.", self.flops);
        metric("step_seconds", gauge, "Duration of the last step.", self.step_seconds);
        metric("last_step_timestamp_seconds", gauge, "Unix time at the end of the last step.", self.at);
        metric("skipped_steps_total", counter, "Steps that changed no weight.", Some(self.skipped as f64));
        metric("held_out_loss", gauge, "Mean loss on held-out text, in nats per token.", self.held_out_loss);
        metric("checkpoint_step", gauge, "Steps of the newest checkpoint.", self.saved_step.map(f64::from));
        metric("checkpoint_seconds", gauge, "Duration of its save, next to training.", self.save_seconds);
        metric(
            "failed_checkpoints_total",
            counter,
            "Checkpoints that were not written.",
            Some(self.failed_saves as f64),
        );
        let stragglers = Some(self.stragglers as f64);
        metric("stragglers_total", counter, "Times that a rank or a link was named as slow.", stragglers);
        if !self.anomalies.is_empty() {
            text +=
                "# HELP pleach_anomalies_total Steps that were not as usual.\n# TYPE pleach_anomalies_total counter\n";
            for (kind, count) in &self.anomalies {
                let _ = writeln!(text, "pleach_anomalies_total{{kind=\"{kind}\"}} {count}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::records::step_line::tests::report;

    #[test]
    fn numbers_have_the_format_of_prometheus() {
        let mut numbers = Numbers::new(6, 200);
        let before = numbers.text();
        assert!(before.contains("pleach_steps 200\n") && before.contains("pleach_step 6\n"), "{before}");
        assert!(!before.contains("pleach_loss"), "{before}");
        let report = StepReport {
            loss: 2.5,
            gradient_norm: f64::NAN,
            anomaly: Some(train::AnomalyReport {
                anomaly: Anomaly::NonFinite,
                update: UpdateOutcome::Skipped,
                skipped_steps: 1,
            }),
            learning_rate: 0.25,
            ..report()
        };
        let rates = Rates {
            tokens_per_second: 8192.0,
            flops: 1e9,
            peak_share: Some(0.5),
            idle_share: None,
            resident_bytes: None,
            total_tokens: 14_336,
            epoch: 0.25,
            expert_rank_load: None,
            left: Duration::ZERO,
        };
        numbers.step(&report, &rates);
        let text = numbers.text();
        for line in [
            "# TYPE pleach_loss gauge",
            "pleach_loss 2.5",
            "pleach_gradient_norm NaN",
            "pleach_tokens_total 2048",
            "pleach_step_seconds 0.25",
            "pleach_skipped_steps_total 1",
            "pleach_anomalies_total{kind=\"not finite\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let is_sample = |line: &str| {
            line.starts_with("# ") || line.split(' ').next_back().is_some_and(|number| number.parse::<f64>().is_ok())
        };
        assert!(text.lines().all(is_sample), "{text}");
    }
}
