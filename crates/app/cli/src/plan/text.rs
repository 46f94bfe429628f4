//! The text that `pleach plan` prints.

use cluster::Software;
use config::figures::{bytes, counted, enough_bytes, grouped, seconds, three_digits};
use config::{GradientReduction, Parallelism, Problem, ZeroStage};
use plan::PreparedStep;
use plan::known_errors::known_errors;
use plan::search::{Answer, Candidates, Counts, Found, Question, Refusals, Remedies, Smallest, keys, values};
use run::description::run_lines::experts;
use sim::Loss;
use train::SetupError;

use crate::arguments::cluster::Searched;
use crate::screen::aligned::aligned;

/// The best layouts as a table, then the reason for each place, and how they were found.
///
/// # Errors
/// A layout that cannot be prepared again.
pub fn found(answer: &Answer, question: &Question) -> Result<String, SetupError> {
    let mut text = if answer.best.is_empty() { String::new() } else { layouts(&answer.best, question)? };
    for (index, pair) in answer.best.windows(2).enumerate() {
        text += &format!("{}{}  {}\n", if index == 0 { "\n" } else { "" }, index + 1, reason(&pair[0], &pair[1]));
    }
    text += &closer(answer, question)?;
    if question.margin_bytes == 0.0 && !answer.best.is_empty() && question.software.is_none() {
        text += &format!("\nmemory without a margin{}\n", gaps(question.software));
    }
    let of_experts = experts(question.config);
    if !of_experts.is_empty() {
        text += &format!("\n{of_experts}");
    }
    text += &format!("\nerrors of predictions: {}\n", known_errors(question.cluster, question.software));
    let Counts { over_memory, over_time, simulated, did_not_fit } = answer.counts;
    let row = |number: usize, what: &str| vec![grouped(number as u64), what.to_string()];
    let counts = aligned(&[
        row(answer.refusals.number(), "refused by a rule"),
        row(over_memory, "excluded by the memory floor"),
        row(over_time, "excluded by the bound on time"),
        row(simulated, &format!("simulated, of which {} do not fit", grouped(did_not_fit as u64))),
    ]);
    Ok(text + "\nlayouts\n" + &counts + &keys_that_refuse(&answer.refusals))
}

/// Rules that are named below the counts.
const NAMED_RULES: usize = 5;

/// `refused  1,024 by parallelism.tp, 512 by parallelism.zero`.
fn keys_that_refuse(refusals: &Refusals) -> String {
    let mut by_number: Vec<(&String, usize)> =
        refusals.by_key.iter().map(|(key, (number, _))| (key, *number)).collect();
    by_number.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let named = by_number.iter().take(NAMED_RULES).map(|(key, number)| format!("{} by {key}", grouped(*number as u64)));
    let named: Vec<String> = named.collect();
    let others: usize = by_number.iter().skip(NAMED_RULES).map(|(_, number)| number).sum();
    let rest = if others > 0 { format!(", {} by others", grouped(others as u64)) } else { String::new() };
    if named.is_empty() { String::new() } else { format!("\nrefused: {}{rest}\n", named.join(", ")) }
}

/// The layouts that do not leave the margin; nothing where there are none.
fn closer(answer: &Answer, question: &Question) -> Result<String, SetupError> {
    if answer.closer.is_empty() {
        return Ok(String::new());
    }
    let margin = bytes(question.margin_bytes as u64);
    let about = match answer.best.is_empty() {
        true => format!("no layout leaves {margin} free; these fit without that margin"),
        false => format!("\nfaster, with less than {margin} left free"),
    };
    let gaps = gaps(question.software);
    Ok(format!("{about}{gaps}\n{}", layouts(&answer.closer, question)?))
}

/// The memory that a prediction of pleach does not count: values are packed into an arena before a run starts. Nothing
/// for other trainers.
pub fn gaps(software: Option<&Software>) -> &'static str {
    match software {
        None => "; `pleach check` adds the gaps between values in memory, which may be too much",
        Some(_) => "",
    }
}

/// A row for each of the layouts; the last column is the layout.
fn layouts(all: &[Found], question: &Question) -> Result<String, SetupError> {
    let limit = bytes(question.memory_bytes as u64);
    let memory = format!("memory of {limit}");
    let mut rows = vec![["", "s/step", "tokens/s/GPU", "MFU", &memory].map(String::from).to_vec()];
    for (index, found) in all.iter().enumerate() {
        let config::RunConfig { model, train, .. } = question.config;
        let step = PreparedStep::new(model, &found.parallelism, train, question.software)?;
        let speed = step.tokens() as f64 / (found.step_ns as f64 * 1e-9) / found.parallelism.world_size() as f64;
        let share = 100.0 * step.mfu(question.cluster, found.step_ns);
        let cells = [(index + 1).to_string(), seconds(found.step_ns), three_digits(speed), format!("{share:.1} %")];
        rows.push(cells.into_iter().chain([bytes(found.memory_bytes as u64)]).collect());
    }
    let names = std::iter::once("layout".to_string()).chain(all.iter().map(|found| layout(&found.parallelism)));
    let table = aligned(&rows);
    Ok(table.lines().zip(names).map(|(line, name)| format!("{line}  {name}\n")).collect())
}

/// Reports that no layout fits or is legal, with the remedies.
pub fn nowhere(answer: &Answer, question: &Question, remedies: &Remedies, searched: Searched) -> String {
    let accelerators = counted(question.accelerators as u64, "accelerator");
    let mut remedies_named = vec![];
    let (problem, rules) = match &remedies.least {
        Some(Smallest { parallelism, memory_bytes }) => {
            remedies_named.push(format!("{} a rank", enough_bytes(*memory_bytes as u64)));
            let problem = format!(
                "no layout fits {accelerators} of {}: the smallest, {}, needs {} per rank",
                bytes(question.memory_bytes as u64),
                layout(parallelism),
                bytes(*memory_bytes as u64),
            );
            (problem, String::new())
        }
        None => {
            let fixed = question.fixed.iter().map(|(key, value)| format!(" --fix {key}={value}"));
            let fixed = fixed.reduce(|all, next| all + &next).map_or(String::new(), |all| format!(" with{all}"));
            let problem = format!("no layout is legal on {accelerators}{fixed}");
            (problem, rules(&answer.refusals))
        }
    };
    remedies_named.extend(remedies.values.iter().map(|(key, value)| format!("--fix {key}={value}")));
    remedies_named.extend(remedies.accelerators.map(|more| format!("{} accelerators", grouped(more as u64))));
    remedies_named.extend(context_degree(question).map(|cp| format!("--fix cp={cp}")));
    if remedies_named.is_empty() {
        remedies_named.push("a smaller model or another train.global_batch".into());
    }
    // An even number below an odd one has many more layouts, and nearly as much memory. A key that is fixed excludes
    // layouts on any number.
    let is_odd = question.accelerators > 1 && !question.accelerators.is_multiple_of(2);
    match searched {
        Searched::Exactly if is_odd || (remedies.least.is_none() && question.fixed.is_empty()) => {
            remedies_named.push("--up-to for layouts on fewer accelerators".into());
        }
        Searched::Exactly | Searched::UpTo => {}
    }
    format!("{problem}; use {}{rules}", remedies_named.join(", or "))
}

/// The least degree that makes a layout with the fixed kind of context parallelism legal, where no degree is fixed: the
/// search leaves out degrees that share short sequences.
fn context_degree(question: &Question) -> Option<String> {
    let Question { config, software, accelerators, fixed, .. } = *question;
    if !fixed.contains_key("cp_kind") || fixed.contains_key("cp") {
        return None;
    }
    let is_legal = |cp: &String| {
        let fixed =
            fixed.iter().chain([(&"cp".to_string(), cp)]).map(|(key, value)| (key.clone(), value.clone())).collect();
        !Candidates::new(config, software, accelerators, &fixed).legal.is_empty()
    };
    values(config, software, accelerators, "cp")?.into_iter().find(is_legal)
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
    let mut text = parallelism.degrees.to_string();
    if parallelism.degrees.cp > 1 {
        text += &format!(" by {}", of("cp_kind"));
    }
    if parallelism.ep > 1 {
        text += &format!(", ep {}", parallelism.ep);
    }
    text += &format!(", zero {}, {}", zero(parallelism, &of("zero")), of("schedule"));
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

/// A sentence with the time or memory by which the better layout is ahead, and the largest loss of the other.
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
