//! Rules of `[parallelism]`: what each degree must divide.

use super::{Rules, nearest_of};
use crate::context_parallel::{ChunkOrder, ContextKind};
use crate::degrees::Degrees;
use crate::model::ModelSpec;
use crate::parallelism::{FullRecompute, Parallelism, Recompute, SavedInputs, SequenceParallel};
use crate::problem::Problem;
use crate::run_file::{Item as _, RunConfig};
use crate::schedule::{ScheduleKind, ScheduleSpec};

/// More ranks than this are a slip of the pen.
const MAX_RANKS: usize = 1 << 20;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let parallelism = &config.parallelism;
    let Degrees { dp, cp, tp, pp } = parallelism.degrees;
    if [dp, cp, tp, pp, parallelism.microbatch_size, parallelism.sum_tree].contains(&0) {
        return;
    }
    sharding_groups(config, rules);
    context_parallelism(config, rules);
    exchanged_heads(config, rules);
    passed_blocks(config, rules);
    tensor_parallelism(config, rules);
    shared_tokens(config, rules);
    recomputation(parallelism, rules);
    pipeline_parallelism(config, rules);
    world_size(config, rules);
    global_batch(config, rules);
}

/// Sharding groups are of one size, and no run of a sum is part of one and part of another. In a group, as in all of
/// dp, the last run may be shorter.
fn sharding_groups(config: &RunConfig, rules: &mut Rules) {
    let (Degrees { dp, .. }, tree) = (config.parallelism.degrees, config.parallelism.sum_tree);
    let group = config.parallelism.shard_group();
    let asked = config.parallelism.shard_group.unwrap_or(1);
    refuse! { rules;
        asked == 0 => "parallelism.shard_group" = 0, "must be positive", "use at least 1";
        asked > 0 && !dp.is_multiple_of(asked) => "parallelism.shard_group" = asked,
            format!("must divide parallelism.dp = {dp}"),
            format!("use {}", nearest_of(&mesh::divisors(dp), asked, 8));
        (1..dp).contains(&group) && tree > group && !tree.is_multiple_of(group) => "parallelism.sum_tree" = tree,
            format!("must be a multiple of parallelism.shard_group = {group} where it is more"),
            format!("use {}, or at most {group}", mesh::multiples_around(group, tree));
    }
}

/// Sequences are cut into equal chunks, in which a token's chunk hides none that it sees.
fn context_parallelism(config: &RunConfig, rules: &mut Rules) {
    let (Parallelism { degrees: Degrees { cp, .. }, context, .. }, train) = (&config.parallelism, &config.train);
    if *cp == 1 || train.sequence_length == 0 {
        return;
    }
    let (length, chunks) = (train.sequence_length, config.parallelism.slices().num_chunks());
    if !length.is_multiple_of(chunks) {
        let per_rank = chunks / cp;
        let degrees: Vec<usize> =
            mesh::divisors(length).into_iter().filter(|cp| length.is_multiple_of(cp * per_rank)).collect();
        let rule = match context.chunks {
            ChunkOrder::Balanced => format!("x 2 chunks must divide train.sequence_length = {length}"),
            ChunkOrder::Contiguous => format!("must divide train.sequence_length = {length}"),
        };
        let mut remedy = format!("use {}", nearest_of(&degrees, *cp, 4));
        if context.chunks == ChunkOrder::Balanced && length.is_multiple_of(*cp) {
            remedy.push_str(", or parallelism.cp_chunks = \"contiguous\"");
        }
        rules.report(Problem::of_value("parallelism.cp", cp, rule, remedy));
    }
    let hides_later = match context.kind {
        ContextKind::Gather | ContextKind::Ring => context.chunks == ChunkOrder::Balanced,
        ContextKind::Heads => false,
    };
    refuse! { rules;
        hides_later && config.data.blanks.is_some() => "parallelism.cp_chunks" = "\"balanced\"",
            "hides tokens that data.blanks lets others see", "use \"contiguous\"";
    }
}

/// Keys that are passed around come in chunks, of which masks of dropout are drawn four at once.
fn passed_blocks(config: &RunConfig, rules: &mut Rules) {
    let Parallelism { degrees: Degrees { cp, .. }, context, .. } = &config.parallelism;
    let (length, chunks) = (config.train.sequence_length, config.parallelism.slices().num_chunks());
    let is_ring = context.kind == ContextKind::Ring && *cp > 1;
    let draws_in_chunks = is_ring && config.model.attention_dropout > 0.0 && length.is_multiple_of(chunks);
    refuse! { rules;
        draws_in_chunks && !(length / chunks).is_multiple_of(4) => "parallelism.cp_kind" = "\"ring\"", format!(
            "with model.attention_dropout takes chunks of a multiple of 4 tokens, not of train.sequence_length = \
             {length} / {chunks} = {}",
            length / chunks
        ), "use \"gather\" or \"heads\"";
    }
}

/// Each rank of a group that exchanges heads has equally many, with the keys and values that they read.
fn exchanged_heads(config: &RunConfig, rules: &mut Rules) {
    let (model, Parallelism { degrees: Degrees { cp, tp, .. }, context, .. }) = (&config.model, &config.parallelism);
    let counts = [("model.num_kv_heads", model.num_kv_heads), ("model.num_heads", model.num_heads)];
    match context.kind {
        ContextKind::Heads if *cp > 1 => {}
        ContextKind::Gather | ContextKind::Heads | ContextKind::Ring => return,
    }
    // Heads that tensor parallelism does not divide are refused already.
    if counts.iter().any(|(_, count)| *count == 0 || !count.is_multiple_of(*tp)) {
        return;
    }
    let Some((key, count)) = counts.into_iter().find(|(_, count)| !(count / tp).is_multiple_of(*cp)) else { return };
    let local = counts.iter().fold(0, |common, (_, count)| mesh::greatest_common_divisor(common, count / tp));
    let heads = match tp {
        1 => format!("{key} = {count}"),
        tp => format!("{key} / parallelism.tp = {count} / {tp} = {}", count / tp),
    };
    let rule = format!("must divide {heads}, the heads that parallelism.cp_kind = \"heads\" splits");
    let choice = nearest_of(&mesh::divisors(local), *cp, 8);
    let remedy = format!("use {choice}, or parallelism.cp_kind = \"gather\"");
    rules.report(Problem::of_value("parallelism.cp", cp, rule, remedy));
}

fn tensor_parallelism(config: &RunConfig, rules: &mut Rules) {
    let (model, tp) = (&config.model, config.parallelism.degrees.tp);
    let split = split_counts(model);
    if split.contains(&0) {
        return;
    }
    let divisors = mesh::divisors(split.into_iter().fold(0, mesh::greatest_common_divisor));
    let choice = nearest_of(&divisors, tp, 8);
    let mut refuse = |rule: String, remedy: String| rules.report(Problem::of_value("parallelism.tp", tp, rule, remedy));
    if tp > model.num_kv_heads && model.num_kv_heads < model.num_heads {
        let rule = format!(
            "must be at most model.num_kv_heads = {}, since key and value heads are not split",
            model.num_kv_heads
        );
        refuse(rule, format!("use {choice}"));
    } else if !model.num_kv_heads.is_multiple_of(tp) && model.num_kv_heads < model.num_heads {
        refuse(format!("must divide model.num_kv_heads = {}", model.num_kv_heads), format!("use {choice}"));
    }
    let experts = model.experts.map(|experts| ("model.experts", experts.number));
    let heads = std::iter::once(("model.num_heads", model.num_heads));
    for (key, count) in heads.chain(model.ffn_widths()).chain(experts) {
        if !count.is_multiple_of(tp) {
            refuse(format!("must divide {key} = {count}"), format!("use {choice}"));
        }
    }
}

/// Heads, columns and experts that tensor-parallel ranks share.
fn split_counts(model: &ModelSpec) -> Vec<usize> {
    let widths = model.ffn_widths().into_iter().map(|(_, width)| width);
    let experts = model.experts.map(|experts| experts.number);
    [model.num_heads, model.num_kv_heads].into_iter().chain(widths).chain(experts).collect()
}

/// Equal runs of a microbatch's tokens for the ranks of a tensor-parallel group, where something shards them.
fn shared_tokens(config: &RunConfig, rules: &mut Rules) {
    let sharer = match (config.parallelism.sequence_parallel, config.parallelism.recompute) {
        (SequenceParallel::On, _) => "parallelism.sequence_parallel = true",
        (SequenceParallel::Off, Recompute::Full(FullRecompute { inputs: SavedInputs::Sharded, .. })) => {
            "parallelism.recompute_inputs = \"sharded\""
        }
        (SequenceParallel::Off, Recompute::None | Recompute::Selective | Recompute::Full(_)) => return,
    };
    let (Parallelism { degrees, microbatch_size, .. }, train) = (&config.parallelism, &config.train);
    let Degrees { dp, cp, tp, .. } = degrees;
    let length = config.parallelism.slices().tokens(train.sequence_length);
    let tokens = microbatch_size.saturating_mul(length);
    if tokens == 0 || tokens.is_multiple_of(*tp) {
        return;
    }
    let model = &config.model;
    let split = split_counts(model).into_iter().chain([tokens]);
    let degrees = mesh::divisors(split.fold(0, mesh::greatest_common_divisor));
    let mut remedy = format!("use {}", nearest_of(&degrees, *tp, 4));
    // Microbatches that have a multiple of tp tokens and still make the batch.
    let grain = tp / mesh::greatest_common_divisor(*tp, length);
    let of_batch = train.global_batch.checked_div(*dp).unwrap_or(0);
    let sizes: Vec<usize> = match of_batch {
        0 => vec![],
        sequences => mesh::divisors(sequences).into_iter().filter(|size| size.is_multiple_of(grain)).collect(),
    };
    if !sizes.is_empty() {
        let sizes = nearest_of(&sizes, *microbatch_size, 3);
        remedy.push_str(&format!(", or parallelism.microbatch_size = {sizes}"));
    }
    let of_rank = if *cp == 1 { String::new() } else { format!(" / parallelism.cp = {cp}") };
    let rule = format!(
        "must divide parallelism.microbatch_size x train.sequence_length{of_rank} = {microbatch_size} x {length} = {tokens} \
         tokens, which {sharer} shards"
    );
    rules.report(Problem::of_value("parallelism.tp", tp, rule, remedy));
}

fn recomputation(Parallelism { recompute, sequence_parallel, .. }: &Parallelism, rules: &mut Rules) {
    let Recompute::Full(FullRecompute { inputs, .. }) = *recompute else { return };
    refuse! { rules;
        inputs == SavedInputs::Whole && *sequence_parallel == SequenceParallel::On
            => "parallelism.recompute_inputs" = "\"whole\"",
            "must be \"sharded\" with parallelism.sequence_parallel = true, where a rank has its own tokens only",
            "use \"sharded\"";
    }
}

fn pipeline_parallelism(config: &RunConfig, rules: &mut Rules) {
    let parallelism = &config.parallelism;
    schedule(parallelism, rules);
    let (layers, pp) = (config.model.num_layers, parallelism.degrees.pp);
    // How many stages a given schedule has, only its text tells.
    let stages_per_rank = parallelism.schedule.stages_per_rank();
    if layers == 0 || stages_per_rank == Some(0) {
        return;
    }
    let num_stages = pp.saturating_mul(stages_per_rank.unwrap_or(1));
    // The embedding and the head may have a stage to themselves.
    let most = (layers + 2) / stages_per_rank.unwrap_or(1);
    if pp > most {
        let times =
            stages_per_rank.filter(|stages| *stages > 1).map_or(String::new(), |stages| format!("x {stages} stages "));
        let rule = format!(
            "{times}must give each stage one of the model.num_layers = {layers} layers, the embedding or the head"
        );
        let remedy = if most > 0 { format!("use at most {most}") } else { "use fewer stages per rank".into() };
        rules.report(Problem::of_value("parallelism.pp", pp, rule, remedy));
    }
    if let Some(layers_per_stage) = &parallelism.stage_layers {
        stage_layers(layers_per_stage, layers, stages_per_rank.map(|_| num_stages), rules);
    }
}

/// Rules of a schedule's options.
fn schedule(parallelism: &Parallelism, rules: &mut Rules) {
    let ScheduleSpec::Generated(ScheduleKind::ZeroBubbleAuto { memory_percent }) = parallelism.schedule else { return };
    let (pp, least) = (parallelism.degrees.pp, 100usize.div_ceil(parallelism.degrees.pp));
    refuse! { rules;
        memory_percent < least => "parallelism.schedule_memory_percent" = memory_percent,
            format!("of parallelism.pp = {pp} microbatches is less than one microbatch"),
            format!("use at least {least}");
    }
}

fn stage_layers(stages: &Vec<usize>, layers: usize, num_stages: Option<usize>, rules: &mut Rules) {
    let (length, sum) = (stages.len(), stages.iter().sum::<usize>());
    let num_stages = num_stages.unwrap_or(length);
    let inner = stages.get(1..length.saturating_sub(1)).unwrap_or(&[]);
    refuse! { rules;
        num_stages != length => "parallelism.stage_layers" = stages.written(),
            format!("must have as many numbers as stages, {num_stages}; got {length}"),
            "leave it out to balance the stages";
        sum != layers => "parallelism.stage_layers" = stages.written(),
            format!("must add up to model.num_layers = {layers}; got {sum}"), "leave it out to balance the stages";
        inner.contains(&0) => "parallelism.stage_layers" = stages.written(),
            "must have at least 1 layer in each stage but the first and the last", "use 1 or more";
    }
}

/// No more ranks than anyone has.
pub(super) fn ranks(parallelism: &Parallelism, rules: &mut Rules) {
    let degrees = parallelism.degrees;
    if parallelism.world_size() > MAX_RANKS {
        let others = degrees.listed().skip(1).map(|(key, degree)| format!("x parallelism.{key} = {degree}"));
        let rule = format!("{} must be at most {MAX_RANKS} ranks", others.collect::<Vec<_>>().join(" "));
        rules.report(Problem::of_value("parallelism.dp", degrees.dp, rule, "use smaller degrees"));
    }
}

fn world_size(config: &RunConfig, rules: &mut Rules) {
    let degrees = config.parallelism.degrees;
    let product = config.parallelism.world_size();
    ranks(&config.parallelism, rules);
    let listed = |of: fn((&'static str, usize)) -> String| degrees.listed().map(of).collect::<Vec<_>>().join(" x ");
    refuse! { rules;
        config.run.ranks != product => "run.ranks" = config.run.ranks, format!(
            "must be parallelism.{} = {} = {product}",
            listed(|(key, _)| key.into()), listed(|(_, degree)| degree.to_string())
        ), format!("write {product}, or omit one of the {}", if degrees.cp == 1 { "four" } else { "five" });
    }
}

fn global_batch(config: &RunConfig, rules: &mut Rules) {
    let Parallelism { degrees: Degrees { dp, .. }, microbatch_size, .. } = config.parallelism;
    let batch = config.train.global_batch;
    let grain = dp.saturating_mul(microbatch_size);
    if batch == 0 {
        return;
    }
    if batch.is_multiple_of(grain) {
        return microbatch_groups(config, rules);
    }
    let rule = format!("must be a multiple of parallelism.dp = {dp} x parallelism.microbatch_size = {microbatch_size}");
    let mut remedy = format!("use {}", mesh::multiples_around(grain, batch));
    if batch.is_multiple_of(dp) {
        let sizes = nearest_of(&mesh::divisors(batch / dp), microbatch_size, 4);
        remedy.push_str(&format!(", or parallelism.microbatch_size = {sizes}"));
    }
    rules.report(Problem::of_value("train.global_batch", batch, rule, remedy));
}

/// An interleaved schedule passes microbatches in groups of as many as there are ranks.
fn microbatch_groups(config: &RunConfig, rules: &mut Rules) {
    let (parallelism, batch) = (&config.parallelism, config.train.global_batch);
    let ScheduleSpec::Generated(kind) = parallelism.schedule else { return };
    let Parallelism { degrees: Degrees { dp, pp, .. }, microbatch_size, .. } = *parallelism;
    let num_microbatches = parallelism.num_microbatches(batch);
    let group = kind.microbatch_group(pp);
    if num_microbatches.is_multiple_of(group) {
        return;
    }
    let rule = format!(
        "gives {num_microbatches} microbatches per replica, which must be a multiple of parallelism.pp = {pp} with \"{}\"",
        kind.name()
    );
    let grain = dp.saturating_mul(microbatch_size).saturating_mul(group);
    let mut remedy = format!("use {}", mesh::multiples_around(grain, batch));
    let sizes = mesh::divisors(batch / dp).into_iter().filter(|size| (batch / dp / size).is_multiple_of(group));
    let sizes: Vec<usize> = sizes.collect();
    if !sizes.is_empty() {
        remedy.push_str(&format!(", or parallelism.microbatch_size = {}", nearest_of(&sizes, microbatch_size, 4)));
    }
    rules.report(Problem::of_value("train.global_batch", batch, rule, remedy));
}
