//! Writes `docs/accuracy.md`: fits constants to the calibration rows and scores the others.

mod constants;

use std::error::Error;
use std::process::ExitCode;

use plan::accuracy::{CHECKS, LAYERS, LayerTime, MEMORY, Outcome, Runs, layer_times, memory_of};
use plan::machine::{LAYOUTS, SMALL_MODEL, measure, run_layouts};
use plan::{Errors, Pair, Ranking, Report, Scored};

const INTRODUCTION: &str = "# Accuracy\n\n\
How far `pleach simulate` is from runs that were measured. This page is written by\n\n\
```text\ncargo run --release -p plan --bin accuracy -- --write docs/accuracy.md\n```\n\n\
Each check fits a few constants of a cluster profile to its calibration rows and scores the rows that it names; both are frozen. The tables are \
in `crates/plan/tables`, with their sources. The runs are those of other trainers: `crates/cluster/software` says what these keep, fuse and wait \
for, each with its source, whole or as what differs from another (`like = \"NAME\"`). No constant belongs to a model. *One constant* is the naive prediction: the model's operations at the peak rate, times \
the median of what the scored rows of the table take of that.\n\n\
Constants are fitted to calibration rows alone. What the model describes, and what is said of the trainers of the first three checks, was chosen \
with the errors of the scored rows in sight; [the rows that nothing was tuned on](#not-tuned-on) are the fairer judge, and \
[what the errors owe to each constant](#constants-by-themselves) is told.\n\n\
A cell of a table that is empty stands for: `dp` = `gpus / (tp x pp)`, `vpp` 1, `zero` 0, `micro_batch` 1, `vocab` 51200, `seq` 2048, `ffn` 4 x \
`hidden`, `kv_heads` = `heads`, `recompute` none, `precision` bf16. Vocabularies are padded to a multiple of 128 x `tp` where `tp` shares them \
out. Another feed-forward width than 4 x `hidden` is that of a gated activation. Layers are spread evenly over stages where they can be. `mem_gb` \
counts units of 10^9 bytes, or of 2^30 where `mem_kind` begins with `GiB`; `resident_gb` is the same between two steps; `status` `OOM` is a run that did \
not fit. Where `notes` quote Megatron's arguments as `{'name': 'value'}`, `swiglu`, `normalization`, `position-embedding-type` and \
`untie-embeddings-and-output-weights` say which model it was, with Megatron's defaults. Rows with `cp` or `ep` above 1, with experts, with another \
`precision` or another selective recomputation than that of the attention core are left out, and told.\n";

const UNEXPLAINED: &str = "\n## What is not explained\n\n\
- *Trainers on DeepSpeed's pipeline* (MT-NLG, GLM, and GPT-NeoX in [six-models.md](six-models.md)) are predicted too short with \
constants that meet Megatron-LM's own runs. What their optimizers add to sums of gradients is in the prediction; the rest is not known. The same \
shows in vTrain's fits, which end at or near the longest start of collectives that there can be.\n\
- *One constant* is closer in some tables that nothing was tuned on. It is the median of the very rows that it is scored on, which differ little; the \
model knows none of their times.
- *Trials of BLOOM* whose heads are no multiple of a cache line wide are slower than predicted, and so are those with microbatches of one or two \
sequences with `tp` 8.\n\
- *B200*: products that are measured one by one reach 0.6 of the peak where they are short and 0.48 where they are long, for the clock gives way to \
power; the profile has one rate.\n\
- *torchtitan*: whether elementwise kernels were fused is not said for all rows, and copies into and out of gathered buffers are not predicted.\n\
- *Megatron-LM's own tests* run in deterministic mode, which has other kernels, and the GPUs of a node of GB200 are not said. They are there for \
their memory; their times are shown as they are.\n\
- *CodeGeeX* ([six-models.md](six-models.md)): neither its time nor the links of its cluster are confirmed.\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, text) = match arguments.as_slice() {
        [] => (None, page()),
        [option] if option == "--machine" => (None, machine()),
        [option, path] if option == "--write" => (Some(path), page()),
        _ => {
            eprintln!("usage: accuracy [--machine | --write FILE]");
            return ExitCode::from(2);
        }
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match path {
        None => print!("{text}"),
        Some(path) => {
            if let Err(error) = std::fs::write(path, text) {
                eprintln!("{path} cannot be written: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn page() -> Result<String, Box<dyn Error>> {
    let mut text = String::from(INTRODUCTION);
    for check in &CHECKS {
        text += &section(&check.run()?);
    }
    text += &layers(&layer_times()?);
    text += "\n## Memory\n\nBytes allocated on the hungriest rank at its peak and, where they are known, between two steps. Nothing is \
             fitted. Of runs that differ in their batch alone, which need the same, the first is shown.\n";
    for runs in &MEMORY {
        text += &memory(runs, &memory_of(runs)?);
    }
    Ok(text + UNEXPLAINED + &constants::section()? + &machine()?)
}

/// Layouts of a small model on the machine that writes the page.
fn machine() -> Result<String, Box<dyn Error>> {
    let cluster = measure()?;
    let runs = run_layouts(&cluster, &LAYOUTS)?;
    let errors = Errors::of(runs.iter().filter_map(|run| run.step_s.error()));
    let mut text = format!(
        "\n## This machine\n\nThe profile is measured (`pleach cluster measure`), then each layout is predicted and run on the machine that writes \
         this page. `cargo run --release -p plan --bin accuracy -- --machine` prints this section for another one. The model is the default GPT with `{}`. Seconds are the median of five steps, \
         and where others use the cores too, what they take between the profile and a run is in the error; bytes are those of the largest arena; {}. Mean error of the \
         seconds {:.1} %, largest {:.1} %.\n\n\
         | layout | measured ms | predicted ms | error | measured bytes | predicted bytes |\n|---|---|---|---|---|---|\n",
        SMALL_MODEL.join("`, `"),
        cluster.about,
        100.0 * errors.mean,
        100.0 * errors.largest
    );
    for run in &runs {
        text += &format!(
            "| {} | {:.1} | {:.1} | {:+.1} % | {} | {} |\n",
            run.name,
            1e3 * run.step_s.measured.unwrap_or_default(),
            1e3 * run.step_s.predicted,
            100.0 * run.step_s.error().unwrap_or_default(),
            run.arena_bytes.measured.unwrap_or_default(),
            run.arena_bytes.predicted
        );
    }
    Ok(text)
}

/// Measured and predicted memory; of runs that differ in their batch alone, the first.
fn memory(runs: &Runs, scored: &[Scored]) -> String {
    let mut text = format!(
        "\n`{}`, trainer `{}`:\n\n| model | layout | measured GB | predicted GB | error | at rest GB | predicted GB | error |\n\
         |---|---|---|---|---|---|---|---|\n",
        runs.file, runs.software
    );
    let cells = |pair: Pair<f64>| match (pair.measured, pair.error()) {
        (Some(measured), Some(error)) => {
            format!("{:.2} | {:.2} | {:+.1} %", measured * 1e-9, pair.predicted * 1e-9, 100.0 * error)
        }
        (Some(_) | None, _) => " | | ".into(),
    };
    for (index, row) in scored.iter().enumerate() {
        let is_same = |other: &Scored| (&other.model, other.memory) == (&row.model, row.memory);
        if !scored[..index].iter().any(is_same) {
            text += &format!("| {} | {} | {} | {} |\n", row.model, row.layout, cells(row.memory), cells(row.resident));
        }
    }
    text
}

/// Recomputation and sequence parallelism in one layer.
fn layers(times: &[LayerTime]) -> String {
    let mut text = format!(
        "\n## One layer\n\nForward and backward of one layer of the 22B model, as shares of the layer without either (`{}`, profile `{}` as it is):\n\n\
         | layer | measured | predicted |\n|---|---|---|\n",
        LAYERS.file, LAYERS.profile
    );
    for LayerTime { name, measured, predicted } in times {
        text += &format!("| {name} | {:.1} % | {:.1} % |\n", 100.0 * measured, 100.0 * predicted);
    }
    text
}

fn section(outcome: &Outcome) -> String {
    let mut text = format!("\n## {}\n", outcome.check.name);
    if let Some(about) = outcome.check.about {
        text += &format!("\n{about}\n");
    }
    if let Some(runs) = outcome.check.calibrated_on {
        text += &format!(
            "\nFitted to {} rows of `{}` (`{}`), from profile `{}`, trainer `{}`:\n\n| constant | value |\n|---|---|\n",
            outcome.calibrated_rows, runs.file, runs.rows, runs.profile, runs.software
        );
        for (constant, value) in &outcome.constants {
            let open = outcome
                .open
                .iter()
                .find(|(of, _)| of == constant)
                .map_or(String::new(), |(_, open)| format!("; {open}"));
            text += &format!("| `{constant}` | {value:.3}{open} |\n");
        }
    }
    text +=
        "\n| scored on | rows | mean | median | p90 | largest | one constant, mean |\n|---|---|---|---|---|---|---|\n";
    for (runs, _, report) in &outcome.scored {
        let Errors { rows, mean, median, p90, largest } = report.errors;
        let [mean, median, p90, largest, baseline] =
            [mean, median, p90, largest, report.baseline.mean].map(|share| format!("{:.1} %", 100.0 * share));
        text += &format!(
            "| `{}` (`{}`), `{}`, `{}` | {rows} | {mean} | {median} | {p90} | {largest} | {baseline} |\n",
            runs.file, runs.rows, runs.profile, runs.software
        );
    }
    let ranked: Vec<(String, Ranking)> = outcome.scored.iter().flat_map(rankings).collect();
    if !ranked.is_empty() {
        text += "\n| order of | rows | Spearman | predicted best is slower by |\n|---|---|---|---|\n";
        for (name, Ranking { rows, spearman, best_slower_by }) in &ranked {
            let spearman = spearman.map_or("none".into(), |value| format!("{value:.3}"));
            text += &format!("| {name} | {rows} | {spearman} | {:.1} % |\n", 100.0 * best_slower_by);
        }
    }
    for (runs, scored, _) in outcome.scored.iter().filter(|(_, scored, _)| scored.len() <= 12) {
        text += &format!(
            "\n`{}`:\n\n| model | layout | measured s | predicted s | error |\n|---|---|---|---|---|\n",
            runs.file
        );
        for row in scored {
            text += &format!(
                "| {} | {} | {:.2} | {:.2} | {:+.1} % |\n",
                row.model,
                row.layout,
                row.time_s.measured.unwrap_or_default(),
                row.time_s.predicted,
                100.0 * row.time_s.error().unwrap_or_default()
            );
        }
    }
    text
}

/// Of tables with many rows of one model: all together, and each model.
fn rankings(scored: &(Runs, Vec<Scored>, Report)) -> Vec<(String, Ranking)> {
    let (runs, rows, report) = scored;
    if rows.len() <= 12 {
        return vec![];
    }
    let models = report.models.iter().map(|(model, ranking)| (model.clone(), *ranking));
    std::iter::once((format!("all of `{}`", runs.file), report.pooled)).chain(models).collect()
}
