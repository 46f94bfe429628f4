//! What `pleach plan` tells people.

use config::{GradientReduction, Parallelism, Problem, ZeroStage};
use plan::search::{Answer, Counts, Found, Question, Refusals, Remedies, Smallest, keys};
use sim::Loss;

use crate::memory::table::aligned;
use crate::screen::figures::{bytes, counted, enough_bytes, grouped};
use crate::simulate::seconds;

/// The best layouts with what makes each better than the next, and how they were found.
pub fn found(answer: &Answer, question: &Question) -> String {
    let mut text = String::new();
    for (index, found) in answer.best.iter().enumerate() {
        let room = question.memory_bytes - found.memory_bytes as f64;
        text += &format!(
            "{}. {}, {} a rank of which {} are left: {}\n",
            index + 1,
            seconds(found.step_ns),
            bytes(question.memory_bytes as u64),
            bytes(room.max(0.0) as u64),
            layout(&found.parallelism)
        );
        if let Some(next) = answer.best.get(index + 1) {
            text += &format!("   {}\n", reason(found, next));
        }
    }
    let Counts { over_memory, over_time, simulated, did_not_fit } = answer.counts;
    let row = |number: usize, what: &str| vec![grouped(number as u64), what.to_string()];
    text + "\nlayouts\n"
        + &aligned(&[
            row(answer.refusals.number(), "refused by a rule"),
            row(over_memory, "excluded by the memory floor"),
            row(over_time, "excluded by the bound on time"),
            row(simulated, &format!("simulated, of which {} do not fit", grouped(did_not_fit as u64))),
        ])
}

/// Reports that no layout fits or is legal, with the remedies.
pub fn nowhere(answer: &Answer, question: &Question, remedies: &Remedies) -> String {
    let accelerators = counted(question.accelerators as u64, "accelerator");
    let mut remedies_named = vec![];
    let (problem, rules) = match &remedies.least {
        Some(Smallest { parallelism, memory_bytes }) => {
            remedies_named.push(format!("{} a rank", enough_bytes(*memory_bytes as u64)));
            let problem = format!(
                "the run fits nowhere on {accelerators} of {}: {} needs least, {} a rank",
                bytes(question.memory_bytes as u64),
                layout(parallelism),
                bytes(*memory_bytes as u64),
            );
            (problem, String::new())
        }
        None => {
            let fixed = question.fixed.iter().map(|(key, value)| format!(" --fix {key}={value}"));
            let fixed = fixed.reduce(|all, next| all + &next).map_or(String::new(), |all| format!(" with{all}"));
            let problem = format!("no layout on {accelerators} obeys the rules of a run{fixed}");
            (problem, rules(&answer.refusals))
        }
    };
    remedies_named.extend(remedies.values.iter().map(|(key, value)| format!("--fix {key}={value}")));
    remedies_named.extend(remedies.accelerators.map(|more| format!("{} accelerators", grouped(more as u64))));
    let remedy = match remedies_named.is_empty() {
        true => "a smaller model or another train.global_batch may do".to_string(),
        false => format!("use {}", remedies_named.join(", or ")),
    };
    format!("{problem}; {remedy}{rules}")
}

/// How many combinations each rule refuses, and what it says of the first.
fn rules(refusals: &Refusals) -> String {
    let mut by_number: Vec<_> = refusals.by_key.values().collect();
    by_number.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    let line = |(number, problem): &&(usize, Problem)| format!("\nrefused {}: {problem}", grouped(*number as u64));
    by_number.iter().map(line).collect()
}

/// `dp 8 x tp 8 x pp 35, zero 1, 1f1b, microbatches of 1, recompute full`.
fn layout(parallelism: &Parallelism) -> String {
    let keys = keys(parallelism);
    let of = |key: &str| keys.get(key).map_or("", String::as_str).to_string();
    let mut text = format!("{}, zero {}, {}", parallelism.degrees, zero(parallelism, &of("zero")), of("schedule"));
    if of("stages_per_rank") != "1" {
        text += &format!(" with {} stages per rank", of("stages_per_rank"));
    }
    text += &format!(", microbatches of {}, recompute {}", of("microbatch_size"), of("recompute"));
    if of("sequence_parallel") == "true" {
        text += ", sequence parallel";
    }
    text
}

/// The form of ZeRO, with when gradients are reduced where that is a choice.
fn zero(parallelism: &Parallelism, number: &str) -> String {
    match parallelism.zero {
        ZeroStage::Off | ZeroStage::One => number.to_string(),
        ZeroStage::Two { reduce } | ZeroStage::Three { reduce, .. } => match reduce {
            GradientReduction::Step => format!("{number} reduced once a step"),
            GradientReduction::Microbatch => format!("{number} reduced per microbatch"),
        },
    }
}

/// By how much the better layout is ahead, and on what the other spends more.
fn reason(better: &Found, worse: &Found) -> String {
    let more = |loss: Loss| worse.spent.on(loss) as i64 - better.spent.on(loss) as i64;
    let most = Loss::ALL.into_iter().max_by_key(|loss| more(*loss)).filter(|loss| more(*loss) > 0);
    match (worse.step_ns - better.step_ns, most) {
        (0, _) if worse.memory_bytes == better.memory_bytes => "the next takes as long and as much memory".into(),
        (0, _) => {
            let bytes = bytes((worse.memory_bytes - better.memory_bytes) as u64);
            format!("the next takes as long and needs {bytes} more")
        }
        (ahead, Some(loss)) => {
            format!("{} ahead of the next, which spends {} more on {loss}", seconds(ahead), seconds(more(loss) as u64))
        }
        (ahead, None) => {
            format!("{} ahead of the next, whose busiest rank has more of the model to compute", seconds(ahead))
        }
    }
}
