//! `pleach presets --compare`: published layouts compared with the fastest that the search finds on the same
//! accelerators, as a page of Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cluster::{Cluster, Software};
use config::figures::grouped;
use config::{Degrees, RunConfig};
use plan::PreparedStep;
use plan::search::{Answer, Found, MEMORY_MARGIN, Question, keys, search};
use run::failure::Failure;
use run::presets::{Origin, Preset, Published, all_published};
use sim::Loss;

use crate::cluster::profile::{profile, software};
use crate::screen::output::print;

const INTRODUCTION: &str = "# Published runs, with the layouts that the search finds

The layouts of published runs, simulated, next to the fastest layout that `pleach plan` finds on as many of the same
accelerators. This page is written by

```text
pleach presets --compare > docs/six-models.md
```

The run files are [presets](../crates/app/run/presets); each names the sources of its numbers. Both layouts are
predicted for the trainer of the run (`--software`) and found among the layouts that it has, so the layout alone makes
the gain. The layout that is found leaves 6 % of the memory free, as `pleach plan` does.

Each prediction has an error; a smaller gain may be absent on the cluster. [accuracy.md](accuracy.md) has the errors of
other runs. The seconds of a step were published for some runs. Those of the others are derived from another published
number, which [derived seconds](#derived-seconds) names.
";

/// The result of one run.
struct Compared {
    preset: Preset,
    published: Published,
    laid_out: Found,
    answer: Answer,
}

/// Compares all published runs and prints the page.
///
/// # Errors
/// Output that cannot be written; a preset that is not a legal run is a fault of this program.
pub fn compare() -> Result<(), Failure> {
    let mut runs = vec![];
    for (preset, published) in all_published() {
        runs.push(Compared::new(preset, published)?);
    }
    print(&page(&runs))
}

impl Compared {
    fn new(preset: Preset, published: Published) -> Result<Compared, Failure> {
        let config = RunConfig::load(preset.name, preset.text, &[]).map_err(Failure::Run)?;
        let cluster = profile(published.cluster)?;
        let software = software(Some(published.software), published.cluster, &cluster)?;
        let refused = |error: train::SetupError| Failure::Work(format!("{}: {error}", preset.name));
        let laid_out = laid_out(&config, &cluster, software.as_ref()).map_err(refused)?;
        let question = Question {
            config: &config,
            cluster: &cluster,
            software: software.as_ref(),
            expert_load: 1.0,
            accelerators: config.parallelism.world_size(),
            fixed: &BTreeMap::new(),
            memory_bytes: cluster.accelerator.memory_bytes(),
            margin_bytes: MEMORY_MARGIN * cluster.accelerator.memory_bytes(),
            top: 1,
        };
        let answer = search(&question).map_err(refused)?;
        Ok(Compared { preset, published, laid_out, answer })
    }
}

fn laid_out(config: &RunConfig, cluster: &Cluster, software: Option<&Software>) -> Result<Found, train::SetupError> {
    let step =
        PreparedStep::new(&config.model, &config.parallelism, &config.train, software)?.placed(config.run.placement);
    let prediction = step.on(cluster)?;
    Ok(Found {
        parallelism: config.parallelism.clone(),
        step_ns: prediction.step_ns(),
        spent: prediction.spent,
        memory_bytes: step.memory_bytes(),
    })
}

fn page(runs: &[Compared]) -> String {
    let mut text = format!(
        "{INTRODUCTION}\n| run | on | s of a step | origin | predicted s | error | best found s | gain |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for Compared { preset, published, laid_out, answer } in runs {
        let predicted = step_s(laid_out);
        let (best, gain) = match answer.best.first() {
            None => ("fits nowhere".to_string(), String::new()),
            Some(best) => {
                (format!("{:.1}", step_s(best)), format!("{:.0} %", 100.0 * (1.0 - step_s(best) / predicted)))
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} of `{}` | {:.1} | {} | {predicted:.1} | {:+.0} % | {best} | {gain} |",
            preset.name,
            grouped(laid_out.parallelism.world_size() as u64),
            published.cluster,
            published.step_s,
            match published.origin {
                Origin::Published => "published",
                Origin::Derived(_) => "derived",
            },
            100.0 * (predicted / published.step_s - 1.0),
        );
    }
    text += &derived_seconds(runs);
    runs.iter().fold(text, |text, compared| text + &section(compared))
}

/// Sources of derived seconds.
fn derived_seconds(runs: &[Compared]) -> String {
    let mut text = String::from("\n## Derived seconds\n\n| run | s | derived from |\n|---|---|---|\n");
    for Compared { preset, published, .. } in runs {
        if let Origin::Derived(from) = published.origin {
            text += &format!("| {} | {} | {from} |\n", preset.name, published.step_s);
        }
    }
    text
}

fn section(Compared { preset, published, laid_out, answer }: &Compared) -> String {
    let others = ["zero", "schedule", "stages_per_rank", "microbatch_size", "recompute", "sequence_parallel"];
    let degrees = Degrees::ONE.listed().map(|(key, _)| key);
    let columns: Vec<&str> = degrees.chain(others).collect();
    let row = |name: &str, found: &Found| {
        let keys = keys(&found.parallelism);
        let cells: Vec<&str> = columns.iter().map(|key| keys.get(*key).map_or("", String::as_str)).collect();
        let memory_gb = found.memory_bytes as f64 * 1e-9;
        format!("| {name} | {} | {:.1} | {memory_gb:.1} |\n", cells.join(" | "), step_s(found))
    };
    let mut text = format!(
        "\n## {}\n\nOn {} of `{}`, for `{}`.\n\n| | {} | s | GB of a rank |\n|{}\n",
        preset.name,
        grouped(laid_out.parallelism.world_size() as u64),
        published.cluster,
        published.software,
        columns.join(" | "),
        "---|".repeat(columns.len() + 3),
    );
    text += &row("published", laid_out);
    let Some(best) = answer.best.first() else { return text };
    text += &row("best found", best);
    let counts = answer.counts;
    text + &format!(
        "\n{}\nOf all layouts, rules refused {}, the memory floor excluded {}, the bounds on time {}; simulated: {}.\n",
        reason(laid_out, best),
        grouped(answer.refusals.number() as u64),
        grouped(counts.over_memory as u64),
        grouped(counts.over_time as u64),
        grouped(counts.simulated as u64),
    )
}

/// Seconds that the best layout saves.
fn reason(laid_out: &Found, best: &Found) -> String {
    let less = |loss: Loss| (laid_out.spent.on(loss) as f64 - best.spent.on(loss) as f64) * 1e-9;
    let mut losses = Loss::ALL.map(|loss| (loss, less(loss)));
    losses.sort_by(|one, other| other.1.total_cmp(&one.1));
    let saved = losses.iter().take(2).filter(|(_, seconds)| *seconds >= 0.05);
    let saved: Vec<String> = saved.map(|(loss, seconds)| format!("{seconds:.1} s less on {loss}")).collect();
    match saved.is_empty() {
        true => "The published layout is as good as any.".into(),
        false => format!("The best found spends {}.", saved.join(" and ")),
    }
}

fn step_s(found: &Found) -> f64 {
    found.step_ns as f64 * 1e-9
}
