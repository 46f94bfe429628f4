//! What a run prints while it runs, and the record that it leaves.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkpoint::{Committed, Finished};
use device::DeviceError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use sync::{into_inner, lock};
use train::{
    Anomaly, AnomalyReport, EvaluationReport, LossScalingReport, Observer, SaveReport, Spike, SpikeKind, StepFate,
    StepReport, Wish, Worker,
};

use crate::failure::Failure;
use crate::run::interrupt::Interrupt;
use crate::run::measured_trace::Recorder;
use crate::screen::figures::{bytes, grouped};
use crate::screen::output::{read_or_failed, tell};
use crate::screen::rates::{Meter, Rates};
use crate::watch::Watchers;

/// Where steps are told.
pub enum Screen {
    /// A line of text for each.
    Lines(Box<dyn Write + Send>),
    /// A JSON object for each.
    Json(Box<dyn Write + Send>),
    /// One line that changes.
    Live(ProgressBar),
    /// Nowhere.
    Quiet,
}

impl Screen {
    /// A line on the terminal behind the standard output that changes with every step, or lines of text where that is none.
    ///
    /// `done` steps of `steps` were done before.
    pub fn of_standard_output(done: u32, steps: u32) -> Screen {
        let bar = ProgressBar::with_draw_target(Some(u64::from(steps)), ProgressDrawTarget::stdout());
        bar.set_position(u64::from(done));
        if bar.is_hidden() {
            return Screen::Lines(Box::new(std::io::stdout()));
        }
        if let Ok(style) = ProgressStyle::with_template("{bar:16} {wide_msg}") {
            bar.set_style(style);
        }
        Screen::Live(bar)
    }

    /// Whether a person reads it, who wants to know more than the steps.
    pub fn tells_more(&self) -> bool {
        match self {
            Screen::Lines(_) | Screen::Live(_) => true,
            Screen::Json(_) | Screen::Quiet => false,
        }
    }

    fn step(&mut self, line: &str, record: &str) -> std::io::Result<()> {
        match self {
            Screen::Lines(out) => write_line(out, line),
            Screen::Json(out) => write_line(out, record),
            Screen::Live(bar) => {
                bar.set_message(line.to_string());
                bar.inc(1);
                Ok(())
            }
            Screen::Quiet => Ok(()),
        }
    }

    /// A measurement between steps; that after the last step is told at the end, beside others.
    fn evaluation(&mut self, report: &EvaluationReport, steps: u32, record: &str) -> std::io::Result<()> {
        let line =
            format!("step {:>1$}/{steps}  held-out loss {2:.4}", report.step, steps.to_string().len(), report.loss);
        match self {
            Screen::Json(out) => write_line(out, record),
            Screen::Lines(out) if report.step < steps => write_line(out, &line),
            Screen::Live(bar) if report.step < steps => {
                bar.println(line);
                Ok(())
            }
            Screen::Lines(_) | Screen::Live(_) | Screen::Quiet => Ok(()),
        }
    }

    /// Something to know beside the steps, for people.
    fn note(&mut self, text: &str) {
        match self {
            Screen::Lines(_) => tell(&format!("{text}\n")),
            Screen::Live(bar) => bar.println(text),
            Screen::Json(_) | Screen::Quiet => {}
        }
    }
}

fn write_line(out: &mut Box<dyn Write + Send>, line: &str) -> std::io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}

/// Tells each step and writes it to the run's metrics; wishes to stop when it cannot, and after Ctrl-C.
pub struct Progress {
    steps: u32,
    interrupt: Interrupt,
    recorder: Option<Recorder>,
    watchers: Option<Arc<Watchers>>,
    outputs: Mutex<Outputs>,
}

struct Outputs {
    screen: Screen,
    meter: Meter,
    metrics: BufWriter<File>,
    failure: Option<Failure>,
    is_interrupt_told: bool,
    evaluation: Option<EvaluationReport>,
    not_saved: Option<String>,
}

/// What a run told in the end.
pub struct Told {
    /// The last measurement on held-out text.
    pub evaluation: Option<EvaluationReport>,
    /// Why there is no checkpoint of the last state that was to be saved.
    pub not_saved: Option<String>,
    /// When instructions ran, where that was asked for.
    pub recorder: Option<Recorder>,
}

impl Progress {
    /// Progress of a run of `steps` steps.
    pub fn new(steps: u32, screen: Screen, meter: Meter, interrupt: Interrupt, metrics: File) -> Progress {
        let metrics = BufWriter::new(metrics);
        let (failure, evaluation, not_saved) = (None, None, None);
        let outputs = Outputs { screen, meter, metrics, failure, is_interrupt_told: false, evaluation, not_saved };
        Progress { steps, interrupt, recorder: None, watchers: None, outputs: Mutex::new(outputs) }
    }

    /// The same, which also hears of every instruction.
    pub fn with_recorder(self, recorder: Option<Recorder>) -> Progress {
        Progress { recorder, ..self }
    }

    /// The same, which also tells those who watch from outside.
    pub fn with_watchers(self, watchers: Arc<Watchers>) -> Progress {
        Progress { watchers: Some(watchers), ..self }
    }

    /// The recorder of instructions, where they are recorded.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Finishes the metrics, and returns what was told last.
    ///
    /// # Errors
    /// What could not be written, of metrics or on the standard output.
    pub fn finish(self) -> Result<Told, Failure> {
        let mut outputs = into_inner(self.outputs);
        if let Screen::Live(bar) = &outputs.screen {
            // The last line stays.
            bar.abandon();
        }
        if let Err(error) = outputs.metrics.flush() {
            outputs.fail_at(&error);
        }
        let Outputs { evaluation, not_saved, .. } = outputs;
        outputs.failure.map_or(Ok(Told { evaluation, not_saved, recorder: self.recorder }), Err)
    }
}

impl Outputs {
    /// Writes a record at once, so that a run that is killed has it.
    fn write_metrics(&mut self, record: &str) -> std::io::Result<()> {
        writeln!(self.metrics, "{record}")?;
        self.metrics.flush()
    }

    fn step(&mut self, report: &StepReport, rates: &Rates, steps: u32) -> Wish {
        let written = record(report, rates).and_then(|record| self.write_metrics(&record).map(|()| record));
        let record = match written {
            Ok(record) => record,
            Err(error) => {
                self.fail_at(&error);
                return Wish::Stop;
            }
        };
        if let Some(anomaly) = &report.anomaly {
            self.screen.note(&anomaly_line(report.step, anomaly));
        }
        match self.screen.step(&line(report, rates, steps), &record) {
            Ok(()) => Wish::Continue,
            Err(error) => {
                self.failure = read_or_failed(Err(error)).err();
                Wish::Stop
            }
        }
    }

    fn fail_at(&mut self, error: &std::io::Error) {
        self.failure = Some(Failure::Work(format!("metrics.jsonl cannot be written: {error}")));
    }
}

impl Observer for Progress {
    fn step(&self, report: &StepReport) -> Wish {
        // Rank 0 alone reports; if it panicked while it did, the run is over and what it wrote is still true.
        let mut outputs = lock(&self.outputs);
        let rates = outputs.meter.step(report);
        if let Some(watchers) = &self.watchers {
            watchers.step(report, &rates);
        }
        outputs.step(report, &rates, self.steps)
    }

    fn wish(&self) -> Wish {
        if !self.interrupt.is_pressed() {
            return Wish::Continue;
        }
        let mut outputs = lock(&self.outputs);
        if !outputs.is_interrupt_told {
            outputs.is_interrupt_told = true;
            outputs.screen.note("stopping after this step; Ctrl-C again ends at once and writes nothing");
        }
        Wish::Stop
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.ended(worker))
    }

    fn saved(&self, report: SaveReport) {
        if let Some(watchers) = &self.watchers {
            watchers.saved(&report);
        }
        let mut outputs = lock(&self.outputs);
        let SaveReport { steps, finished: Finished { outcome, not_retired }, wall } = report;
        match &outcome {
            // The end of a run is told at the end.
            Ok(_) if steps == self.steps => {}
            Ok(Committed { data_bytes, .. }) => {
                let (size, seconds) = (bytes(*data_bytes), wall.as_secs_f64());
                outputs.screen.note(&format!("saved after step {steps}: {size} in {seconds:.2} s"));
            }
            // A warning is for everyone.
            Err(error) => tell(&format!("not saved after step {steps}: {error}\n")),
        }
        if let Some(error) = not_retired {
            tell(&format!("checkpoints that are not kept are still there: {error}\n"));
        }
        outputs.not_saved = outcome.err().map(|error| error.to_string());
    }

    fn evaluation(&self, report: &EvaluationReport) {
        if let Some(watchers) = &self.watchers {
            watchers.evaluation(report);
        }
        let mut outputs = lock(&self.outputs);
        outputs.evaluation = Some(*report);
        let written = evaluation_record(report).and_then(|record| outputs.write_metrics(&record).map(|()| record));
        match written {
            Err(error) => outputs.fail_at(&error),
            Ok(record) => {
                let printed = outputs.screen.evaluation(report, self.steps, &record);
                outputs.failure = outputs.failure.take().or(read_or_failed(printed).err());
            }
        }
    }
}

/// `1:02:03`, or `2:03` within an hour.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// The most wanted first, for narrow terminals.
fn line(report: &StepReport, rates: &Rates, steps: u32) -> String {
    let width = steps.to_string().len();
    let idle = rates.idle_share.map_or(String::new(), |share| format!("  idle {:>2.0} %", 100.0 * share));
    format!(
        "step {:>width$}/{steps}  loss {:.4}  lr {:.2e}  grad norm {:.3}  {} left  {} tokens/s  {:.1} GFLOP/s, {:.0} % of peak{idle}{}",
        report.step,
        report.loss,
        report.learning_rate,
        report.gradient_norm,
        clock(rates.left),
        grouped(rates.tokens_per_second.round() as u64),
        rates.flops / 1e9,
        100.0 * rates.peak_share,
        report.loss_scaling.as_ref().map_or(String::new(), scaling),
    )
}

/// How the loss was scaled, as the end of a line.
fn scaling(report: &LossScalingReport) -> String {
    match report.fate {
        StepFate::Updated => format!("  loss scale {:.0}", report.factor),
        StepFate::Skipped | StepFate::Hopeless => {
            format!("  loss scale {:.0}: overflow, skipped, {} so far", report.factor, report.skipped_steps)
        }
    }
}

fn anomaly_name(anomaly: &Anomaly) -> &'static str {
    match anomaly {
        Anomaly::NonFinite => "not finite",
        Anomaly::Spike(spike) => spike.kind.name(),
    }
}

/// A step that is not as usual, as a line for people.
fn anomaly_line(step: u32, report: &AnomalyReport) -> String {
    let done = match report.fate {
        StepFate::Updated => "the run continues".to_string(),
        StepFate::Skipped | StepFate::Hopeless => {
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

/// One line of the metrics.
#[derive(Serialize)]
struct Record {
    step: u32,
    loss: f64,
    learning_rate: f32,
    grad_norm: f64,
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
    gflops: f64,
    peak_share: f64,
    idle_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// In 64 bits, which JSON writes to the last digit: a power of two stays one.
    loss_scale: Option<f64>,
    /// Steps so far that changed no weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_steps: Option<u32>,
    /// The name of the anomaly of a step that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    anomaly: Option<&'static str>,
    /// The usual value, and how far above it that of this step is.
    #[serde(skip_serializing_if = "Option::is_none")]
    usual: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// Whether the step changed no weight for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<bool>,
}

fn record(report: &StepReport, rates: &Rates) -> std::io::Result<String> {
    let spike = report.anomaly.and_then(|report| match report.anomaly {
        Anomaly::NonFinite => None,
        Anomaly::Spike(spike) => Some(spike),
    });
    let of_scaling = report.loss_scaling.map(|scaling| scaling.skipped_steps);
    let record = Record {
        step: report.step,
        loss: report.loss,
        learning_rate: report.learning_rate,
        grad_norm: report.gradient_norm,
        tokens: report.tokens,
        seconds: report.wall.as_secs_f64(),
        tokens_per_second: rates.tokens_per_second,
        gflops: rates.flops / 1e9,
        peak_share: rates.peak_share,
        idle_share: rates.idle_share,
        loss_scale: report.loss_scaling.map(|scaling| f64::from(scaling.factor)),
        skipped_steps: of_scaling.or(report.anomaly.map(|report| report.skipped_steps)),
        anomaly: report.anomaly.map(|report| anomaly_name(&report.anomaly)),
        usual: spike.map(|spike| spike.usual),
        score: spike.map(|spike| spike.score),
        skipped: report.anomaly.map(|report| report.fate != StepFate::Updated),
    };
    Ok(serde_json::to_string(&record)?)
}

/// A measurement in the metrics.
#[derive(Serialize)]
struct EvaluationRecord {
    step: u32,
    held_out_loss: f64,
    held_out_tokens: u64,
    seconds: f64,
}

fn evaluation_record(report: &EvaluationReport) -> std::io::Result<String> {
    let EvaluationReport { step, loss, tokens, wall } = *report;
    let record = EvaluationRecord { step, held_out_loss: loss, held_out_tokens: tokens, seconds: wall.as_secs_f64() };
    Ok(serde_json::to_string(&record)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::rates::Capacity;
    use config::RunConfig;

    fn report() -> StepReport {
        StepReport {
            step: 7,
            loss: 2.345_678,
            gradient_norm: 0.987_6,
            loss_scaling: None,
            anomaly: None,
            learning_rate: 1.5e-3,
            tokens: 2048,
            wall: Duration::from_millis(250),
        }
    }

    fn rates() -> Rates {
        let left = Duration::from_millis(3_725_400);
        Rates { tokens_per_second: 8192.0, flops: 7.05e10, peak_share: 0.354, idle_share: Some(0.04), left }
    }

    fn progress(screen: Screen, interrupt: Interrupt, name: &str) -> (Progress, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("pleach-progress-{name}-{}", std::process::id()));
        let meter = Meter::start(&RunConfig::quick_start(), Capacity { cores: 2, peak_flops: 1e11 });
        (Progress::new(10, screen, meter, interrupt, File::create(&path).expect("a file")), path)
    }

    #[test]
    fn a_line_names_its_numbers() {
        assert_eq!(
            line(&report(), &rates(), 300),
            "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988  1:02:05 left  8,192 tokens/s  70.5 GFLOP/s, 35 % of peak  idle  4 %"
        );
        let unknown = Rates { idle_share: None, left: Duration::from_secs(61), ..rates() };
        assert_eq!(
            line(&report(), &unknown, 9),
            "step 7/9  loss 2.3457  lr 1.50e-3  grad norm 0.988  1:01 left  8,192 tokens/s  70.5 GFLOP/s, 35 % of peak"
        );
    }

    #[test]
    fn a_loss_scale_is_a_power_of_two_to_the_last_digit() {
        let scaling = LossScalingReport { factor: 4_294_967_296.0, fate: StepFate::Skipped, skipped_steps: 2 };
        let report = StepReport { loss_scaling: Some(scaling), ..report() };
        let told = line(&report, &rates(), 9);
        assert!(told.ends_with("idle  4 %  loss scale 4294967296: overflow, skipped, 2 so far"), "{told}");
        let kept = record(&report, &rates()).expect("JSON");
        assert!(kept.ends_with("\"loss_scale\":4294967296.0,\"skipped_steps\":2}"), "{kept}");
    }

    #[test]
    fn a_record_keeps_every_digit() {
        assert_eq!(
            record(&report(), &rates()).expect("JSON"),
            "{\"step\":7,\"loss\":2.345678,\"learning_rate\":0.0015,\"grad_norm\":0.9876,\"tokens\":2048,\
             \"seconds\":0.25,\"tokens_per_second\":8192.0,\"gflops\":70.5,\"peak_share\":0.354,\"idle_share\":0.04}"
        );
    }

    #[test]
    fn a_closed_pipe_ends_the_run() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (progress, path) = progress(Screen::Lines(Box::new(Closed)), Interrupt::default(), "closed");
        assert_eq!(progress.step(&report()), Wish::Stop);
        progress.finish().expect("metrics are whole");
        let metrics = std::fs::read_to_string(&path).expect("metrics");
        assert!(metrics.contains("\"step\":7") && metrics.lines().count() == 1, "{metrics}");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn an_interrupt_is_a_wish_to_stop() {
        let interrupt = Interrupt::default();
        let (progress, path) = progress(Screen::Quiet, interrupt.clone(), "interrupt");
        assert_eq!(progress.wish(), Wish::Continue);
        interrupt.press();
        assert_eq!(progress.wish(), Wish::Stop);
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn the_last_measurement_is_kept() {
        let (progress, path) = progress(Screen::Quiet, Interrupt::default(), "measured");
        let measured = EvaluationReport { step: 10, loss: 1.5, tokens: 640, wall: Duration::from_millis(500) };
        progress.evaluation(&measured);
        assert_eq!(progress.finish().expect("written").evaluation, Some(measured));
        assert_eq!(
            std::fs::read_to_string(&path).expect("metrics"),
            "{\"step\":10,\"held_out_loss\":1.5,\"held_out_tokens\":640,\"seconds\":0.5}\n"
        );
        std::fs::remove_file(&path).expect("removed");
    }
}
