//! Lines of `metrics.jsonl`, whose keys docs/metrics.md describes.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use train::{Anomaly, EvaluationReport, RouterFigures, StepReport, UpdateOutcome};

use crate::records::anomaly::anomaly_name;
use crate::records::rates::Rates;

/// A number with all of its digits. JSON has finite ones only: others are the strings `NaN`, `Infinity` and
/// `-Infinity`, which number parsers of Python, Rust and JavaScript read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            number if number.is_nan() => serializer.serialize_str("NaN"),
            f64::INFINITY => serializer.serialize_str("Infinity"),
            f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
            number => serializer.serialize_f64(number),
        }
    }
}

/// One step.
#[derive(Serialize)]
struct Record {
    step: u32,
    loss: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    z_loss: Option<Number>,
    #[serde(flatten)]
    routers: Option<RouterRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expert_rank_load: Option<f64>,
    learning_rate: f32,
    grad_norm: Number,
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
    gflops: f64,
    peak_share: Option<f64>,
    idle_share: Option<f64>,
    /// The most that this process has held so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    /// In 64 bits, which JSON writes to the last digit: a power of two stays one.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_scale: Option<f64>,
    /// Steps so far that changed no weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_steps: Option<u32>,
    /// The name of the anomaly of a step that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    anomaly: Option<&'static str>,
    /// The usual value, and how far above it that of this step is.
    #[serde(skip_serializing_if = "Option::is_none")]
    usual: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<Number>,
    /// Whether the step changed no weight for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<bool>,
    total_tokens: u64,
    epoch: f64,
    time: f64,
}

/// The routers of a step.
#[derive(Serialize)]
struct RouterRecord {
    expert_load_max: f64,
    expert_load_min: f64,
    idle_experts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_share: Option<f64>,
    router_entropy: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    router_balance_loss: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    router_z_loss: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    router_bias_min: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    router_bias_max: Option<f32>,
}

impl RouterRecord {
    fn of(figures: &RouterFigures) -> RouterRecord {
        let RouterFigures { largest_load, smallest_load, idle_experts, dropped, entropy, balance_loss, z_loss, bias } =
            *figures;
        RouterRecord {
            expert_load_max: largest_load,
            expert_load_min: smallest_load,
            idle_experts,
            dropped_share: dropped,
            router_entropy: Number(entropy),
            router_balance_loss: balance_loss.map(Number),
            router_z_loss: z_loss.map(Number),
            router_bias_min: bias.map(|[least, _]| least),
            router_bias_max: bias.map(|[_, most]| most),
        }
    }
}

/// A step as a line, without its end.
///
/// # Errors
/// None that is known: numbers and strings are JSON.
pub fn of_step(report: &StepReport, rates: &Rates, now: SystemTime) -> std::io::Result<String> {
    let spike = report.anomaly.and_then(|report| match report.anomaly {
        Anomaly::NonFinite => None,
        Anomaly::Spike(spike) => Some(spike),
    });
    let of_scaling = report.loss_scaling.map(|scaling| scaling.skipped_steps);
    let record = Record {
        step: report.step,
        loss: Number(report.loss),
        z_loss: report.z_loss.map(Number),
        routers: report.routers.as_ref().map(RouterRecord::of),
        expert_rank_load: rates.expert_rank_load,
        learning_rate: report.learning_rate,
        grad_norm: Number(report.gradient_norm),
        tokens: report.tokens,
        seconds: report.wall.as_secs_f64(),
        tokens_per_second: rates.tokens_per_second,
        gflops: rates.flops / 1e9,
        peak_share: rates.peak_share,
        idle_share: rates.idle_share,
        resident_bytes: rates.resident_bytes,
        loss_scale: report.loss_scaling.map(|scaling| f64::from(scaling.factor)),
        skipped_steps: of_scaling.or(report.anomaly.map(|report| report.skipped_steps)),
        anomaly: report.anomaly.map(|report| anomaly_name(&report.anomaly)),
        usual: spike.map(|spike| Number(spike.usual)),
        score: spike.map(|spike| Number(spike.score)),
        skipped: report.anomaly.map(|report| report.update != UpdateOutcome::Updated),
        total_tokens: rates.total_tokens,
        epoch: rates.epoch,
        time: unix_seconds(now),
    };
    Ok(serde_json::to_string(&record)?)
}

/// A measurement.
#[derive(Serialize)]
struct EvaluationRecord {
    step: u32,
    held_out_loss: Number,
    held_out_tokens: u64,
    seconds: f64,
    time: f64,
}

/// A measurement on held-out text as a line, without its end.
///
/// # Errors
/// The errors of [`of_step`].
pub fn of_evaluation(report: &EvaluationReport, now: SystemTime) -> std::io::Result<String> {
    let EvaluationReport { step, loss, tokens, wall } = *report;
    let record = EvaluationRecord {
        step,
        held_out_loss: Number(loss),
        held_out_tokens: tokens,
        seconds: wall.as_secs_f64(),
        time: unix_seconds(now),
    };
    Ok(serde_json::to_string(&record)?)
}

/// A measurement on a text of `data.validation`.
#[derive(Serialize)]
struct ValidationRecord<'a> {
    step: u32,
    validation: &'a str,
    validation_loss: Number,
    validation_tokens: u64,
    seconds: f64,
    time: f64,
}

/// A measurement on the text `name` as a line, without its end.
///
/// # Errors
/// The errors of [`of_step`].
pub fn of_validation(name: &str, report: &EvaluationReport, now: SystemTime) -> std::io::Result<String> {
    let EvaluationReport { step, loss, tokens, wall } = *report;
    let record = ValidationRecord {
        step,
        validation: name,
        validation_loss: Number(loss),
        validation_tokens: tokens,
        seconds: wall.as_secs_f64(),
        time: unix_seconds(now),
    };
    Ok(serde_json::to_string(&record)?)
}

/// A text that the run has generated, an event of the report.
#[derive(Serialize)]
struct SampleRecord<'a> {
    event: &'static str,
    step: u32,
    text: String,
    prompt: &'a str,
    generated: &'a str,
    time: f64,
}

/// A prompt and the text that was generated after it as a line, without its end.
///
/// # Errors
/// The errors of [`of_step`].
pub fn of_sample(step: u32, [prompt, generated]: [&str; 2], now: SystemTime) -> std::io::Result<String> {
    let text = format!("{prompt}{generated}");
    let record = SampleRecord { event: "sample", step, text, prompt, generated, time: unix_seconds(now) };
    Ok(serde_json::to_string(&record)?)
}

/// Something that happened to a run, an event of the report.
#[derive(Serialize)]
struct EventRecord<'a> {
    event: &'static str,
    step: u32,
    text: &'a str,
    time: f64,
}

/// An event of the kind `event`, a word, as a line, without its end.
///
/// # Errors
/// The errors of [`of_step`].
pub fn of_event(event: &'static str, step: u32, text: &str, now: SystemTime) -> std::io::Result<String> {
    Ok(serde_json::to_string(&EventRecord { event, step, text, time: unix_seconds(now) })?)
}

/// Seconds since 1970, to a millisecond.
fn unix_seconds(now: SystemTime) -> f64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use train::{LossScalingReport, UpdateOutcome};

    use super::*;
    use crate::records::step_line::tests::report;

    fn rates() -> Rates {
        Rates {
            tokens_per_second: 8192.0,
            flops: 7.05e10,
            peak_share: Some(0.354),
            idle_share: Some(0.04),
            resident_bytes: Some(1000),
            total_tokens: 14336,
            epoch: 0.25,
            expert_rank_load: None,
            left: Duration::from_secs(1),
        }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(1_500_123_456)
    }

    #[test]
    fn a_record_keeps_every_digit() {
        assert_eq!(
            of_step(&report(), &rates(), now()).expect("JSON"),
            "{\"step\":7,\"loss\":2.345678,\"learning_rate\":0.0015,\"grad_norm\":0.9876,\"tokens\":2048,\
             \"seconds\":0.25,\"tokens_per_second\":8192.0,\"gflops\":70.5,\"peak_share\":0.354,\"idle_share\":0.04,\
             \"resident_bytes\":1000,\"total_tokens\":14336,\"epoch\":0.25,\"time\":1500.123}"
        );
        let measured = EvaluationReport { step: 10, loss: 1.5, tokens: 640, wall: Duration::from_millis(500) };
        assert_eq!(
            of_evaluation(&measured, now()).expect("JSON"),
            "{\"step\":10,\"held_out_loss\":1.5,\"held_out_tokens\":640,\"seconds\":0.5,\"time\":1500.123}"
        );
        assert_eq!(
            of_validation("books", &measured, now()).expect("JSON"),
            "{\"step\":10,\"validation\":\"books\",\"validation_loss\":1.5,\"validation_tokens\":640,\"seconds\":0.5,\
             \"time\":1500.123}"
        );
    }

    #[test]
    fn a_sample_is_an_event() {
        assert_eq!(
            of_sample(20, ["The", " rank\n"], now()).expect("JSON"),
            "{\"event\":\"sample\",\"step\":20,\"text\":\"The rank\\n\",\"prompt\":\"The\",\"generated\":\" rank\\n\",\"time\":1500.123}"
        );
    }

    #[test]
    fn a_z_loss_follows_the_loss() {
        let kept = of_step(&StepReport { z_loss: Some(0.0045), ..report() }, &rates(), now()).expect("JSON");
        assert!(kept.contains("\"loss\":2.345678,\"z_loss\":0.0045,\"learning_rate\""), "{kept}");
    }

    #[test]
    fn routers_follow_the_losses() {
        let routers = RouterFigures {
            largest_load: 2.5,
            smallest_load: 0.125,
            idle_experts: 0,
            dropped: Some(0.25),
            entropy: 1.75,
            balance_loss: Some(0.0625),
            z_loss: None,
            bias: Some([-0.002, 0.001]),
        };
        let of_two = Rates { expert_rank_load: Some(1.5), ..rates() };
        let kept = of_step(&StepReport { routers: Some(routers), ..report() }, &of_two, now()).expect("JSON");
        let expected = "\"loss\":2.345678,\"expert_load_max\":2.5,\"expert_load_min\":0.125,\"idle_experts\":0,\
                        \"dropped_share\":0.25,\"router_entropy\":1.75,\"router_balance_loss\":0.0625,\"router_bias_min\":-0.002,\
                        \"router_bias_max\":0.001,\"expert_rank_load\":1.5,\"learning_rate\"";
        assert!(kept.contains(expected), "{kept}");
        assert_eq!(
            of_event("experts", 9, "idle", now()).expect("JSON"),
            "{\"event\":\"experts\",\"step\":9,\"text\":\"idle\",\"time\":1500.123}"
        );
    }

    #[test]
    fn a_loss_scale_is_a_power_of_two_to_the_last_digit() {
        let scaling = LossScalingReport { factor: 4_294_967_296.0, update: UpdateOutcome::Skipped, skipped_steps: 2 };
        let report = StepReport { loss_scaling: Some(scaling), ..report() };
        let kept = of_step(&report, &rates(), now()).expect("JSON");
        assert!(kept.contains("\"loss_scale\":4294967296.0,\"skipped_steps\":2,"), "{kept}");
    }

    #[test]
    fn a_number_that_is_not_finite_is_kept() {
        let report = StepReport { loss: f64::NAN, gradient_norm: f64::NEG_INFINITY, ..report() };
        let kept = of_step(&report, &rates(), now()).expect("JSON");
        assert!(kept.contains("\"loss\":\"NaN\"") && kept.contains("\"grad_norm\":\"-Infinity\""), "{kept}");
        let infinite = EvaluationReport { step: 1, loss: f64::INFINITY, tokens: 1, wall: Duration::ZERO };
        let kept = of_evaluation(&infinite, now()).expect("JSON");
        assert!(kept.contains("\"held_out_loss\":\"Infinity\""), "{kept}");
    }
}
