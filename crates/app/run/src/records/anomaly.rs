//! Steps that are not as usual, in words.

use train::{Anomaly, AnomalyReport, Spike, SpikeKind, UpdateOutcome};

/// The name of an anomaly in `metrics.jsonl`.
pub fn anomaly_name(anomaly: &Anomaly) -> &'static str {
    match anomaly {
        Anomaly::NonFinite => "not finite",
        Anomaly::Spike(spike) => spike.kind.name(),
    }
}

/// A step that is not as usual, as a line for people.
pub fn anomaly_line(step: u32, report: &AnomalyReport) -> String {
    let done = match report.update {
        UpdateOutcome::Updated => "the run continues".to_string(),
        UpdateOutcome::Skipped | UpdateOutcome::Hopeless => {
            format!("the step changed no weight, {} so far", report.skipped_steps)
        }
    };
    match report.anomaly {
        Anomaly::NonFinite => format!("step {step}: the loss or a gradient is not finite; {done}"),
        Anomaly::Spike(Spike { kind: SpikeKind::Divergence, value, usual, .. }) => {
            format!("step {step}: the run diverges: smoothed loss {value:.4}, and {usual:.4} at its least; {done}")
        }
        Anomaly::Spike(Spike { kind, value, usual, score }) => format!(
            "step {step}: {}: {value:.4} is {score:.1} robust deviations above {usual:.4}, the median of recent steps; {done}",
            kind.name()
        ),
    }
}
