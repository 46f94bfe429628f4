//! Writes `docs/accuracy.md`: fits constants to the calibration rows and scores the others.

mod constants;
mod differences;
mod errors;
mod machine;
mod marks;
mod paragraph;
mod tables;

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;
use plan::{Pair, Scored, known_errors};
use surveys::accuracy::{CHECKS, MEMORY, Outcome, Runs, memory_of};
use surveys::page::write;
use surveys::this_machine::answer;

use paragraph::{item, paragraph};

/// Fit constants to measured runs, score predictions of others and print their page
#[derive(Args)]
#[group(multiple = false)]
pub struct Arguments {
    /// Print the section of this machine alone
    #[arg(long)]
    machine: bool,
    /// Where the page goes
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Where the errors go that predictions carry: crates/planning/plan/errors.csv
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Compare all but the section of this machine with a page
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Run a layout of this machine and print what was measured
    #[arg(long, hide = true)]
    layout: Option<usize>,
}

const INTRODUCTION: &str = "# Accuracy

How far `pleach simulate` is from measured runs. This page is written by

```text
cargo run --release -p surveys -- accuracy --write docs/accuracy.md
```

Each check fits a few constants of a cluster profile to its calibration rows and scores the rows that it names; both are
frozen. The tables are in `crates/planning/plan/tables`, with their sources. The runs are those of other trainers:
`crates/planning/cluster/software` describes what these keep, fuse and wait for, each entry with its source, in full or
as the difference to another trainer (`like = \"NAME\"`). No constant belongs to a model. *One constant* is the naive
prediction: the model's operations at the peak rate, times the median share of that rate over the scored rows of the
table.

Constants are fitted to calibration rows alone. The terms of the model, and the descriptions of the trainers of the
first three checks, were chosen with the errors of the scored rows in sight; [the rows that nothing was tuned
on](#not-tuned-on) are the fairer judge. [Constants by themselves](#constants-by-themselves) reports how much the
errors owe to each constant.

An empty cell of a table stands for: `dp` = `gpus / (tp x pp)`, `vpp` 1, `zero` 0, `micro_batch` 1, `vocab` 51200,
`seq` 2048, `ffn` 4 x `hidden`, `kv_heads` = `heads`, `recompute` none, `precision` bf16. Vocabularies are padded to
a multiple of 128 x `tp` where `tp` shards them. A feed-forward width other than 4 x `hidden` is that of a gated
activation. Layers are spread evenly over stages where possible. `mem_gb` counts units of 10^9 bytes, or of 2^30
where `mem_kind` begins with `GiB`; `resident_gb` is the same between two steps; `status` `OOM` is a run that did
not fit. Where `notes` quote Megatron's arguments as `{'name': 'value'}`, `swiglu`, `normalization`,
`position-embedding-type` and `untie-embeddings-and-output-weights` choose the model, with Megatron's defaults. Rows
with `cp` or `ep` above 1, with experts, with another `precision` or another selective recomputation than that of
the attention core are left out and reported.
";

const UNEXPLAINED: &[&str] = &[
    "*Trainers on DeepSpeed's pipeline* (MT-NLG, GLM, and GPT-NeoX in [six-models.md](six-models.md)) are \
     predicted too short with constants that meet Megatron-LM's own runs. The additions of their optimizers \
     to sums of gradients are in the prediction; the rest is not known. vTrain's fits show the same: they end \
     at or near the longest possible start of collectives.",
    "*One constant* is closer in some tables that nothing was tuned on. It is the median of the very rows \
     that it is scored on, which differ little; the model knows none of their times.",
    "*Trials of BLOOM* whose heads are not a multiple of a cache line wide are slower than predicted, and so \
     are those with microbatches of one or two sequences with `tp` 8.",
    "*B200*: products that are measured one by one reach 0.6 of the peak where they are short and 0.48 where \
     they are long, because the clock falls at the limit of power. The profile has one rate, and so has that of the \
     GB200, whose own products are published for short runs alone.",
    "*torchtitan*: the rate of products of the H100 of 500 W is that of an H200 of 700 W by a rule, and not \
     measured.",
    "*Megatron-LM's own tests* run in deterministic mode. Attention adds in order there: by FlashAttention-2 on \
     A100 and GB200, by cuDNN on H100, for which no measured rate is known, so that it has that of any order. Steps \
     with tp 4 are predicted too short on all three accelerators, next to steps with pp 4 that are not: something \
     that each tensor-parallel rank does is not in the prediction. The sum of the gradient of the embedding in order \
     is one such thing: each rank adds the tokens of the others to one row, one after the other \
     (pytorch/pytorch#41162).",
    "*CodeGeeX* ([six-models.md](six-models.md)): neither its time nor the links of its cluster are \
     confirmed.",
];

/// Makes the page, or a part of it.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { machine, write: to, errors: table, compare: with, layout } = arguments;
    let text: Result<String, Box<dyn Error>> = match (machine, layout, table, with) {
        (true, ..) => machine::section(),
        (_, Some(index), ..) => answer(*index).map_err(Into::into),
        (_, _, Some(_), _) => outcomes().and_then(|outcomes| errors::table(&outcomes)),
        (.., Some(path)) => compare(path),
        _ => page(),
    };
    let text = text.map_err(|error| error.to_string())?;
    match to.as_ref().or(table.as_ref()) {
        Some(path) => write(path, &text),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

fn page() -> Result<String, Box<dyn Error>> {
    Ok(predictions()? + &machine::section()?)
}

/// Computes all but the section of this machine again: the page at `path` must begin with it.
fn compare(path: &Path) -> Result<String, Box<dyn Error>> {
    let (expected, path) = (std::fs::read_to_string(path), path.display());
    let expected = expected.map_err(|error| format!("{path}: {error}"))?;
    let text = predictions()?;
    let lines = text.lines().count();
    let differs = text.lines().zip(expected.lines()).enumerate().find(|(_, (got, expected))| got != expected);
    if let Some((index, (got, expected))) = differs {
        return Err(format!("{path}:{}: expected {expected}\ngot {got}", index + 1).into());
    }
    match expected.starts_with(&text) {
        true => {
            Ok(format!("confirmed: {lines} lines are the same; the layouts of this machine are not measured again\n"))
        }
        false => Err(format!("{path} must have {lines} lines before the section of this machine").into()),
    }
}

fn outcomes() -> Result<Vec<Outcome>, Box<dyn Error>> {
    CHECKS.iter().map(|check| check.run()).collect()
}

/// The page without the section of the machine that writes it.
fn predictions() -> Result<String, Box<dyn Error>> {
    let outcomes = outcomes()?;
    if errors::table(&outcomes)? != known_errors::TABLE {
        return Err(
            "crates/planning/plan/errors.csv is not that of this code; write it with --errors, build again".into()
        );
    }
    let mut text = String::from(INTRODUCTION) + &marks::section(&outcomes);
    for outcome in &outcomes {
        text += &tables::section(outcome);
    }
    text += &differences::section()?;
    text += "\n## Memory\n";
    text += &paragraph(
        "Bytes allocated on the largest rank at its peak and, where they are known, between two steps. Nothing is \
         fitted. Of runs that differ in their batch alone, which need the same, the first is shown.",
    );
    for runs in &MEMORY {
        text += &memory(runs, &memory_of(runs)?);
    }
    text += "\n## Unexplained errors\n\n";
    text.extend(UNEXPLAINED.iter().map(|error| item(error)));
    Ok(text + &constants::section()?)
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
