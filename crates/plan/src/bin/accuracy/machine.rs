//! The section on the machine that writes the page.

use std::error::Error;
use std::process::Command;

use plan::machine::{LAYOUTS, Measured, Predicted, SMALL_MODEL, measure, predict, run_in_child};
use plan::{Errors, Pair};

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

    /// Bytes of the arenas of all ranks, which are threads of one process.
    fn arenas_bytes(&self) -> usize {
        self.predicted.arenas.iter().map(|arena| arena.size_bytes).sum()
    }

    /// Bytes by which the process grew beyond its arenas.
    fn beyond_bytes(&self) -> Option<f64> {
        let (before, peak) = (self.measured.before_bytes?, self.measured.peak_bytes?);
        Some(peak as f64 - before as f64 - self.arenas_bytes() as f64)
    }
}

/// Layouts of a small model, each in a process of its own.
pub fn section() -> Result<String, Box<dyn Error>> {
    let cluster = measure()?;
    let program = std::env::current_exe()?;
    let mut rows = vec![];
    for (index, layout) in LAYOUTS.into_iter().enumerate() {
        let measured = run_in_child(&mut Command::new(&program), index)?;
        rows.push(Row { name: layout.0, predicted: predict(&cluster, layout)?, measured });
    }
    Ok(introduction(&cluster.about, &rows) + &times(&rows) + &memory(&rows))
}

fn introduction(about: &str, rows: &[Row]) -> String {
    let errors = Errors::of(rows.iter().filter_map(|row| row.step_s().error()));
    format!(
        "\n## This machine\n\nThe profile is measured (`pleach cluster measure`). Then each layout is predicted, and run \
         in a process of its own on the machine\nthat writes this page: {about}. `cargo run --release -p plan --bin \
         accuracy -- --machine` prints this section for another\nmachine. The model is the default GPT with\n`{}`.\n\n\
         Seconds are the median of five steps. {} Mean error of the seconds {:.1} %, largest {:.1} %.\n",
        SMALL_MODEL.join("`,\n`"),
        load(),
        100.0 * errors.mean,
        100.0 * errors.largest
    )
}

/// How busy the machine was, as far as it says so.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let minute = text.split(' ').next().and_then(|minute| minute.parse::<f64>().ok());
    match minute {
        // This section runs a thread on each core.
        Some(minute) if minute > 1.2 * cores as f64 => format!(
            "Other programs used the machine meanwhile (load {minute:.1} on {cores} cores), and the errors hold their share."
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
    let mut text = String::from(
        "\nBytes of a rank: the arena is stained before the first step, and after the last one every line of 64 bytes \
         that lost its\nstain counts as *written*, with a room of 8 MiB behind the arena, where nothing may be written. \
         *Used* are the lines in which the\nplan has some value at some time, *planned* is the whole arena; the \
         difference are gaps between values. The rank with the\nlargest arena is shown.\n\n\
         Bytes of the process: *before* is resident before ranks begin (the program, its compiled steps), *peak* is the \
         most that is\nresident while they run (`VmHWM`). Ranks are threads of one process, so *arenas* is the sum over \
         ranks; parameters, gradients,\nthe optimizer's state and activations are all in them. *Beyond* is peak - before - \
         arenas: packed operands of products, stacks,\nmessages under way between ranks, and what a huge page of 2 MiB \
         holds past the end of an arena; below zero where a gap of an\narena has pages that nothing writes, or where \
         ranks reuse memory that was resident before.\n\n\
         | layout | written | used | planned | ranks | before MB | arenas MB | peak MB | beyond MB |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let megabytes = |bytes: Option<f64>| bytes.map_or("not known".into(), |bytes| format!("{:.1}", bytes * 1e-6));
    for row in rows {
        let arenas = row.predicted.arenas.iter().zip(&row.measured.written_bytes);
        let Some((arena, written)) = arenas.max_by_key(|(arena, _)| arena.size_bytes) else { continue };
        text += &format!(
            "| {} | {written} | {} | {} | {} | {} | {} | {} | {} |\n",
            row.name,
            arena.used_bytes,
            arena.size_bytes,
            row.predicted.arenas.len(),
            megabytes(row.measured.before_bytes.map(|bytes| bytes as f64)),
            megabytes(Some(row.arenas_bytes() as f64)),
            megabytes(row.measured.peak_bytes.map(|bytes| bytes as f64)),
            megabytes(row.beyond_bytes()),
        );
    }
    text
}
