//! What a run prints while it runs, and the record that it leaves.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use train::{Observer, StepReport, Wish};

/// What is printed for each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line of text.
    Plain,
    /// A JSON object.
    Json,
    /// Nothing.
    Quiet,
}

/// Prints each step and writes it to the run's metrics.
pub struct Progress {
    style: Style,
    steps: u32,
    outputs: Mutex<Outputs>,
}

struct Outputs {
    terminal: Box<dyn Write + Send>,
    metrics: BufWriter<File>,
    failure: Option<String>,
}

impl Progress {
    /// Progress of a run of `steps` steps.
    pub fn new(style: Style, steps: u32, terminal: Box<dyn Write + Send>, metrics: File) -> Progress {
        let outputs = Outputs { terminal, metrics: BufWriter::new(metrics), failure: None };
        Progress { style, steps, outputs: Mutex::new(outputs) }
    }

    /// Finishes the metrics.
    ///
    /// # Errors
    /// What could not be written, of metrics.
    pub fn finish(self) -> Result<(), String> {
        let mut outputs = self.outputs.into_inner().unwrap_or_else(PoisonError::into_inner);
        let flushed = outputs.metrics.flush().map_err(|error| error.to_string());
        outputs.failure.map_or(flushed, Err)
    }
}

impl Outputs {
    /// Writes the step's record at once, so that a run that is killed has it, and returns it.
    fn write_metrics(&mut self, report: &StepReport) -> std::io::Result<String> {
        let record = record(report)?;
        writeln!(self.metrics, "{record}")?;
        self.metrics.flush()?;
        Ok(record)
    }
}

impl Observer for Progress {
    fn step(&self, report: &StepReport) -> Wish {
        // Rank 0 alone reports; if it panicked while it did, the run is over and what it wrote is still true.
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        let record = match outputs.write_metrics(report) {
            Ok(record) => record,
            Err(error) => {
                outputs.failure = Some(error.to_string());
                return Wish::Stop;
            }
        };
        let printed = match self.style {
            Style::Plain => writeln!(outputs.terminal, "{}", line(report, self.steps)),
            Style::Json => writeln!(outputs.terminal, "{record}"),
            Style::Quiet => Ok(()),
        };
        // Whoever reads the lines has seen enough when the pipe is closed.
        match printed.and_then(|()| outputs.terminal.flush()) {
            Ok(()) => Wish::Continue,
            Err(_) => Wish::Stop,
        }
    }
}

fn tokens_per_second(report: &StepReport) -> f64 {
    report.tokens as f64 / report.wall.as_secs_f64().max(1e-9)
}

fn line(report: &StepReport, steps: u32) -> String {
    let width = steps.to_string().len();
    format!(
        "step {:>width$}/{steps}  loss {:.4}  lr {:.2e}  grad norm {:.3}  {:.0} tokens/s",
        report.step,
        report.loss,
        report.learning_rate,
        report.gradient_norm,
        tokens_per_second(report),
    )
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
}

fn record(report: &StepReport) -> Result<String, std::io::Error> {
    let record = Record {
        step: report.step,
        loss: report.loss,
        learning_rate: report.learning_rate,
        grad_norm: report.gradient_norm,
        tokens: report.tokens,
        seconds: report.wall.as_secs_f64(),
        tokens_per_second: tokens_per_second(report),
    };
    Ok(serde_json::to_string(&record)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn report() -> StepReport {
        StepReport {
            step: 7,
            loss: 2.345_678,
            gradient_norm: 0.987_6,
            learning_rate: 1.5e-3,
            tokens: 2048,
            wall: Duration::from_millis(250),
        }
    }

    #[test]
    fn a_line_names_its_numbers() {
        assert_eq!(line(&report(), 300), "step   7/300  loss 2.3457  lr 1.50e-3  grad norm 0.988  8192 tokens/s");
    }

    #[test]
    fn a_record_keeps_every_digit() {
        assert_eq!(
            record(&report()).expect("JSON"),
            "{\"step\":7,\"loss\":2.345678,\"learning_rate\":0.0015,\"grad_norm\":0.9876,\"tokens\":2048,\
             \"seconds\":0.25,\"tokens_per_second\":8192.0}"
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
        let path = std::env::temp_dir().join(format!("pleach-progress-{}", std::process::id()));
        let progress = Progress::new(Style::Plain, 10, Box::new(Closed), File::create(&path).expect("a file"));
        assert_eq!(progress.step(&report()), Wish::Stop);
        progress.finish().expect("metrics are whole");
        let metrics = std::fs::read_to_string(&path).expect("metrics");
        assert!(metrics.contains("\"step\":7") && metrics.lines().count() == 1, "{metrics}");
        std::fs::remove_file(&path).expect("removed");
    }
}
