//! Writes `docs/six-models.md`: published layouts beside those that the search finds.

use std::process::ExitCode;

use plan::search::Found;
use plan::search::candidates::keys;
use plan::six_models::{Compared, ComparisonError, PUBLISHED};
use sim::Loss;

const INTRODUCTION: &str = "# Six published runs\n\n\
The layouts of six published runs, simulated, and the fastest layouts that `pleach plan` finds on as many accelerators. This page is written by\n\n\
```text\ncargo run --release -p plan --bin six_models -- --write docs/six-models.md\n```\n\n\
The run files are in `crates/plan/models`, each with its source and with what it leaves out. Both layouts are predicted for the kernels of the trainer \
of the run (`crates/cluster/software`), so that what is gained is gained by the layout alone; memory is that of pleach. [How far such predictions \
are](accuracy.md) from what was measured has to be kept in mind: a gain that is smaller than that is none.\n\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = match arguments.as_slice() {
        [] => None,
        [option, path] if option == "--write" => Some(path),
        _ => {
            eprintln!("usage: six_models [--write FILE]");
            return ExitCode::from(2);
        }
    };
    let compared: Result<Vec<Compared>, ComparisonError> = PUBLISHED.iter().map(|run| run.compare()).collect();
    let text = match compared {
        Ok(compared) => page(&compared),
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

fn page(compared: &[Compared]) -> String {
    let mut text = String::from(INTRODUCTION);
    text +=
        "| run | cluster | published s | predicted s | error | best found s | gain |\n|---|---|---|---|---|---|---|\n";
    for Compared { published, laid_out, answer } in compared {
        let predicted = laid_out.step_ns as f64 * 1e-9;
        let best = answer.best.first().map(|best| best.step_ns as f64 * 1e-9);
        text += &format!(
            "| {} | `{}` | {:.1} | {predicted:.1} | {:+.0} % | {} | {} |\n",
            published.name,
            published.profile,
            published.step_s,
            100.0 * (predicted / published.step_s - 1.0),
            best.map_or("fits nowhere".into(), |best| format!("{best:.1}")),
            best.map_or(String::new(), |best| format!("{:.0} %", 100.0 * (1.0 - best / predicted))),
        );
    }
    compared.iter().fold(text, |text, compared| text + &section(compared))
}

fn section(Compared { published, laid_out, answer }: &Compared) -> String {
    let mut text = format!(
        "\n## {}\n\n| | dp | tp | pp | zero | schedule | stages per rank | microbatch | recompute | sequence parallel | s | GB of a rank |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        published.name
    );
    text += &row("published", laid_out);
    let Some(best) = answer.best.first() else { return text };
    text += &row("best found", best);
    let less = |loss: Loss| laid_out.spent.on(loss) as f64 * 1e-9 - best.spent.on(loss) as f64 * 1e-9;
    let mut losses: Vec<(Loss, f64)> = Loss::ALL.iter().map(|loss| (*loss, less(*loss))).collect();
    losses.sort_by(|one, other| other.1.total_cmp(&one.1));
    let saved = losses.iter().take(2).filter(|(_, seconds)| *seconds > 0.0);
    let saved: Vec<String> = saved.map(|(loss, seconds)| format!("{seconds:.1} s less for {loss}")).collect();
    let counts = answer.counts;
    text + &format!(
        "\nThe best found spends {}. Of all layouts {} were refused by a rule, {} excluded by the memory floor, {} by the bound on time, and {} \
         simulated.\n",
        if saved.is_empty() { "its time alike".to_string() } else { saved.join(" and ") },
        counts.refused,
        counts.over_memory,
        counts.over_time,
        counts.simulated
    )
}

fn row(name: &str, found: &Found) -> String {
    let keys = keys(&found.parallelism);
    let order =
        ["dp", "tp", "pp", "zero", "schedule", "stages_per_rank", "microbatch_size", "recompute", "sequence_parallel"];
    let cells: Vec<&str> = order.iter().map(|key| keys.get(*key).map_or("", String::as_str)).collect();
    format!(
        "| {name} | {} | {:.1} | {:.1} |\n",
        cells.join(" | "),
        found.step_ns as f64 * 1e-9,
        found.memory_bytes as f64 * 1e-9
    )
}
