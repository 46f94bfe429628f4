//! A run in a few lines.

use config::figures::{bytes, counted, three_digits};
use config::{
    ExpertsSpec, LoraSpec, ModelSpec, Parallelism, RunConfig, TopQuery, active_parameters, all_params, flops_per_token,
    unique_parameters,
};

use crate::memory::need::{MemoryBudget, Need};
use crate::verdict::Verdict;

/// A run in a few lines.
pub fn describe(config: &RunConfig) -> String {
    let run = run_line(config);
    format!("{}{}, results in {}\n", sizes(config), run.trim_end(), config.run.folder.display())
}

/// The line of steps and text, which are those of a run wherever its folder is.
pub fn run_line(config: &RunConfig) -> String {
    let paths: Vec<String> = config.data.sources.iter().map(|source| source.path.display().to_string()).collect();
    let corpus = if paths.is_empty() { "embedded text".to_string() } else { paths.join(", ") };
    format!("run     {} on {corpus}\n", counted(u64::from(config.train.steps), "step"))
}

/// Model, ranks and step of a run, which do not depend on where it runs.
pub fn sizes(config: &RunConfig) -> String {
    let (model, parallelism, train) = (&config.model, &config.parallelism, &config.train);
    let tokens = train.global_batch * train.sequence_length;
    format!(
        "model   {}: {}, hidden {}, {}\n\
         {}{}ranks   {} = {}{}{}\n\
         step    {}: {} of {}, {} of {} per replica\n",
        counted(unique_parameters(model), "parameter"),
        layers(model),
        model.hidden,
        counted(model.num_heads as u64, "head"),
        experts(config),
        adapters(model),
        config.run.ranks,
        parallelism.degrees,
        expert_ranks(parallelism),
        sum_order(parallelism),
        counted(tokens as u64, "token"),
        counted(train.global_batch as u64, "sequence"),
        train.sequence_length,
        counted(parallelism.num_microbatches(train.global_batch) as u64, "microbatch"),
        parallelism.microbatch_size,
    )
}

/// The parameters that a token goes through, where there are experts, and the operations of training on it as MFU
/// counts them ([`flops_per_token`]), in a line.
pub fn experts(config: &RunConfig) -> String {
    let RunConfig { model, train, .. } = config;
    let Some(ExpertsSpec { number, per_token, .. }) = model.experts else { return String::new() };
    let (active, layers) = (active_parameters(model), model.num_expert_layers() as u64);
    let (active, layers) = (counted(active, "parameter"), counted(layers, "layer"));
    let flops = match flops_per_token(model, train.sequence_length) {
        few if few < 1e9 => format!("{} MFLOP", three_digits(few / 1e6)),
        many => format!("{} GFLOP", three_digits(many / 1e9)),
    };
    format!("experts {per_token} of {number} for a token, in {layers}; a token goes through {active} and {flops}\n")
}

/// The parameters that a run with adapters trains, with their share, in a line.
fn adapters(model: &ModelSpec) -> String {
    let Some(LoraSpec { rank, alpha, targets }) = &model.lora else { return String::new() };
    let trained: u64 = all_params(model).filter(|param| model.trains(param.unit)).map(|param| param.len() as u64).sum();
    let share = 100.0 * trained as f64 / unique_parameters(model) as f64;
    let targets: Vec<&str> = targets.iter().map(|target| target.name()).collect();
    let (trained, targets) = (counted(trained, "parameter"), targets.join(", "));
    format!("lora    {trained} trained, {} %: rank {rank}, alpha {alpha}, {targets}\n", three_digits(share))
}

/// The replicas that divide experts, where there are several.
fn expert_ranks(Parallelism { ep, .. }: &Parallelism) -> String {
    if *ep == 1 { String::new() } else { format!("; {ep} neighbouring replicas divide the experts") }
}

/// The order in which gradients are summed over replicas, where that is not rank order.
fn sum_order(parallelism: &Parallelism) -> String {
    match parallelism.sum_tree {
        tree if 1 < tree && tree < parallelism.degrees.dp => {
            format!("; gradients of {tree} neighbouring replicas are added first")
        }
        _ => String::new(),
    }
}

/// The layers of the stack, and the one after the final norm where there is one.
fn layers(model: &ModelSpec) -> String {
    let stack = counted(model.num_layers as u64, "layer");
    match model.top_query {
        TopQuery::Off => stack,
        TopQuery::On => format!("{stack} and a top query's"),
    }
}

/// How much memory the arenas of a run need, and how much there is. Other memory of the process is not planned.
pub fn memory_line(verdict: &Verdict) -> String {
    let need = Need::new(&verdict.setup);
    let together = format!(
        "{} of arenas in {} together",
        bytes(need.together_bytes()),
        counted(verdict.config.run.ranks as u64, "rank")
    );
    let line = match verdict.budget {
        MemoryBudget::PerRank(there) | MemoryBudget::PerAccelerator(there) => {
            let largest = need.stage_bytes.iter().copied().max().unwrap_or(0);
            format!("{} of arena per rank at most, {} available; {together}", bytes(largest), bytes(there))
        }
        MemoryBudget::Together(limit) => format!("{together}; {} has {}", limit.source, bytes(limit.bytes)),
        MemoryBudget::Unknown => together,
    };
    let hosts = need.on_hosts().map_or(String::new(), |on_hosts| format!("        {on_hosts}\n"));
    format!("memory  {line}\n{hosts}")
}
