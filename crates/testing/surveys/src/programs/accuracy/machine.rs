//! The section on the machine that writes the page.

use std::error::Error;

use plan::machine::measure;
use plan::{Errors, Pair};
use surveys::this_machine::{LAYOUTS, Measured, Predicted, SMALL_MODEL, predict, run_in_child};

use super::paragraph::paragraph;

const ARENAS: &str = "Bytes of a rank. The arena is stained before the first step. After the last one, every line of \
                 64 bytes that lost its stain counts as *written*, also in the 8 MiB after the arena, where \
                 nothing may be written. *Used* lines are those in which the plan has a value at some time; the \
                 padding at the end of a unit's gradient sums is used and never written, unless ZeRO reduces it. \
                 *Planned* is the whole arena; lines that are planned and not used are gaps between values. The \
                 rank with the largest arena is shown.";

const PROCESS: &str = "MB (10^6 bytes) of the process, in which all ranks are threads. *Before* is resident before \
                 ranks begin: the program and its compiled steps. *Peak* is the most that is resident while \
                 they run (`VmHWM`); *growth* is peak - before. *Arenas* is the sum of the planned arenas of \
                 all ranks, which hold parameters, gradients, the optimizer's state and activations. \
                 *Predicted* adds the buffers into which each rank packs the operands of products, and counts \
                 both in whole huge pages of 2 MiB. The error is what stacks, messages between ranks and \
                 reports add, and what is in huge pages that nothing touches.";

/// A layout, predicted and run.
struct Row {
    name: &'static str,
    predicted: Predicted,
    measured: Measured,
}

impl Row {
    fn step_s(&self) -> Pair<f64> {
        Pair { measured: Some(self.measured.step_s), predicted: self.predicted.step_s }
    }

    /// Bytes by which the process grew while its ranks ran.
    fn grown_bytes(&self) -> Option<f64> {
        Some(self.measured.peak_bytes? as f64 - self.measured.before_bytes? as f64)
    }

    fn grown(&self) -> Pair<f64> {
        Pair { measured: self.grown_bytes(), predicted: self.predicted.resident_bytes() as f64 }
    }
}

/// Layouts of a small model, each in a process of its own.
pub fn section() -> Result<String, Box<dyn Error>> {
    let cluster = measure()?;
    let program = std::env::current_exe()?;
    let mut rows = vec![];
    for (index, layout) in LAYOUTS.into_iter().enumerate() {
        let measured = run_in_child(&program, index)?;
        rows.push(Row { name: layout.0, predicted: predict(&cluster, layout)?, measured });
    }
    Ok(introduction(&cluster.about, &rows) + &times(&rows) + &memory(&rows))
}

fn introduction(about: &str, rows: &[Row]) -> String {
    let errors = Errors::of(rows.iter().filter_map(|row| row.step_s().error()));
    let method = format!(
        "The profile is measured (`pleach cluster measure`). Then each layout is predicted, and run in a process of \
         its own on the machine that writes this page: {about}. `cargo run --release -p surveys -- accuracy \
         --machine` prints this section for another machine. The model is the default GPT with `{}`.",
        SMALL_MODEL.join("`, `")
    );
    let seconds = format!(
        "Seconds are the median of five steps. {} Mean error of the seconds {:.1} %, largest {:.1} %.",
        load(),
        100.0 * errors.mean,
        100.0 * errors.largest
    );
    String::from("\n## This machine\n") + &paragraph(&method) + &paragraph(&seconds)
}

/// How busy the machine was, as far as it says so.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let minute = text.split(' ').next().and_then(|minute| minute.parse::<f64>().ok());
    match minute {
        // This section runs a thread on each core.
        Some(minute) if minute > 1.2 * cores as f64 => format!(
            "Other programs used the machine meanwhile (load {minute:.1} on {cores} cores): the errors of the \
             seconds hold what these took."
        ),
        Some(minute) => format!("The load of the last minute was {minute:.1} on {cores} cores."),
        None => String::new(),
    }
}

fn times(rows: &[Row]) -> String {
    let mut text = String::from("\n| layout | measured ms | predicted ms | error |\n|---|---|---|---|\n");
    for row in rows {
        let Pair { measured, predicted } = row.step_s();
        text += &format!(
            "| {} | {:.1} | {:.1} | {:+.1} % |\n",
            row.name,
            1e3 * measured.unwrap_or_default(),
            1e3 * predicted,
            100.0 * row.step_s().error().unwrap_or_default()
        );
    }
    text
}

fn memory(rows: &[Row]) -> String {
    let mut text =
        paragraph(ARENAS) + "\n| layout | written | used | planned | planned / written |\n|---|---|---|---|---|\n";
    for row in rows {
        let arenas = row.predicted.arenas.iter().zip(&row.measured.written_bytes);
        let Some((arena, written)) = arenas.max_by_key(|(arena, _)| arena.size_bytes) else { continue };
        text += &format!(
            "| {} | {written} | {} | {} | {:+.2} % |\n",
            row.name,
            arena.used_bytes,
            arena.size_bytes,
            100.0 * (arena.size_bytes as f64 / *written as f64 - 1.0)
        );
    }
    text += &paragraph(PROCESS);
    text += "\n| layout | ranks | before | peak | growth | arenas | predicted | error |\n\
             |---|---|---|---|---|---|---|---|\n";
    let megabytes = |bytes: Option<f64>| bytes.map_or("not known".into(), |bytes| format!("{:.1}", bytes * 1e-6));
    for row in rows {
        let Pair { measured, predicted } = row.grown();
        let arenas: usize = row.predicted.arenas.iter().map(|arena| arena.size_bytes).sum();
        let cells = [
            row.measured.before_bytes.map(|bytes| bytes as f64),
            row.measured.peak_bytes.map(|bytes| bytes as f64),
            measured,
            Some(arenas as f64),
            Some(predicted),
        ];
        text += &format!(
            "| {} | {} | {} | {} |\n",
            row.name,
            row.predicted.arenas.len(),
            cells.map(megabytes).join(" | "),
            row.grown().error().map_or("not known".into(), |error| format!("{:+.1} %", 100.0 * error))
        );
    }
    text
}
