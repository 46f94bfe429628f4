//! A measured run of a table: what was run, and what was measured.

use cluster::{AttentionKernels, SecondStage, Software};
use config::SavedInputs;
use config::{
    Anomalies, BatchOrigin, ContextParallel, Degrees, FullRecompute, Gathering, GradientReduction, GradientSums,
    LearningRateSchedule, LossScaling, ModelSpec, Parallelism, Precision, Products, Recompute, Reshard, ScheduleKind,
    SequenceParallel, TrainSpec, ZeroStage, check_sizes,
};

use crate::measured_model::{attention, model};
use crate::table::{CORRECTION, Row, TableError};

/// One row, as a run that can be simulated.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// Index in the table.
    pub index: usize,
    /// The model's name.
    pub name: String,
    /// The trained model.
    pub model: ModelSpec,
    /// How it was spread.
    pub parallelism: Parallelism,
    /// Batch and numbers.
    pub train: TrainSpec,
    /// Whether attention was a fused kernel, where the table says so.
    pub attention: Option<AttentionKernels>,
    /// Seconds of a step, where it ran.
    pub step_s: Option<f64>,
    /// Bytes allocated on the largest rank at its peak, where they were measured.
    pub memory_bytes: Option<f64>,
    /// The same between two steps.
    pub resident_bytes: Option<f64>,
    /// Whether it ran or ran out of memory, where the table says so.
    pub fits: Option<bool>,
}

/// Axes of which a table says too little, and why.
const OTHER_AXES: [(&str, &str); 2] = [
    ("cp", "context parallelism, whose kind and chunks a table does not name"),
    ("ep", "expert parallelism, which the planner does not try"),
];

impl MeasuredRun {
    /// Reads a row. Cells that are empty stand for the defaults of `docs/accuracy.md`.
    ///
    /// # Errors
    /// A cell that cannot be used, or a run that pleach has no words for.
    pub fn new(row: &Row) -> Result<MeasuredRun, TableError> {
        for (axis, reason) in OTHER_AXES {
            if row.count(axis)?.is_some_and(|degree| degree > 1) {
                return Err(row.beyond(axis, reason));
            }
        }
        let parallelism = parallelism(row)?;
        let model = model(row, parallelism.degrees.tp)?;
        shared_evenly(row, &model, &parallelism)?;
        let train = train(row, model.context)?;
        let per_microbatch = parallelism.degrees.dp * parallelism.microbatch_size;
        if !train.global_batch.is_multiple_of(per_microbatch) {
            let rule = format!(
                "not a multiple of dp {} x micro_batch {}; {CORRECTION}",
                parallelism.degrees.dp, parallelism.microbatch_size
            );
            return Err(row.refused("global_batch", rule));
        }
        if let Err(problems) = check_sizes(&model, &parallelism, &train) {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(row.too_large(lines.join("; ")));
        }
        let parallelism = Parallelism { stage_layers: even_stages(&model, &parallelism), ..parallelism };
        let step_s = row.number("iter_s")?;
        let memory_bytes = memory_bytes(row)?;
        Ok(MeasuredRun {
            index: row.index,
            name: row.text("model").unwrap_or("model").to_string(),
            model,
            parallelism,
            train,
            attention: attention(row)?,
            step_s,
            memory_bytes,
            resident_bytes: row.number("resident_gb")?.map(|gigabytes| gigabytes * 1e9),
            fits: fits(row)?.or(step_s.or(memory_bytes).map(|_| true)),
        })
    }

    /// Whether anything was measured.
    pub fn is_measured(&self) -> bool {
        self.step_s.is_some() || self.memory_bytes.is_some() || self.resident_bytes.is_some() || self.fits.is_some()
    }

    /// The trainer of the run: that of the profile, with the attention that the table names.
    pub fn software(&self, software: Option<&Software>) -> Option<Software> {
        let software = software?.clone();
        Some(Software { attention: self.attention.unwrap_or(software.attention), ..software })
    }

    /// The layout as the trainer has it: stage 2 of some shards parameters too, which stay gathered from their
    /// forward to their backward pass.
    pub fn trained_parallelism(&self, software: Option<&Software>) -> Parallelism {
        let second_stage = software.map(|software| software.second_stage);
        match (self.parallelism.zero, second_stage) {
            (ZeroStage::Two { reduce }, Some(SecondStage::ParametersToo)) => {
                let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterBackward };
                Parallelism { zero: ZeroStage::Three { reduce, gathering }, ..self.parallelism.clone() }
            }
            (ZeroStage::Off | ZeroStage::One | ZeroStage::Two { .. } | ZeroStage::Three { .. }, _) => {
                self.parallelism.clone()
            }
        }
    }

    /// Accelerators of the run.
    pub fn accelerators(&self) -> usize {
        self.parallelism.world_size()
    }
}

/// That tensor-parallel ranks have equally many heads and columns: no trainer has others.
fn shared_evenly(row: &Row, model: &ModelSpec, parallelism: &Parallelism) -> Result<(), TableError> {
    let ModelSpec { num_heads, num_kv_heads, ffn_hidden, .. } = *model;
    let tp = parallelism.degrees.tp;
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(row.beyond("kv_heads", format!("not a divisor of heads = {num_heads}")));
    }
    let counts = [("heads", num_heads), ("kv_heads", num_kv_heads), ("ffn", ffn_hidden)];
    match counts.into_iter().find(|(_, count)| !count.is_multiple_of(tp)) {
        Some((column, count)) => Err(row.beyond("tp", format!("not a divisor of {column} = {count}"))),
        None => Ok(()),
    }
}

/// Whether it ran or ran out of memory, by the column.
fn fits(row: &Row) -> Result<Option<bool>, TableError> {
    match row.word("status").as_deref() {
        None => Ok(None),
        Some("ok" | "success" | "done" | "completed") => Ok(Some(true)),
        Some("oom" | "out-of-memory") => Ok(Some(false)),
        Some(_) => Err(row.beyond("status", "neither ok nor oom")),
    }
}

/// Units of 10^9 bytes, or of 2^30 where `mem_kind` begins with `GiB`.
fn memory_bytes(row: &Row) -> Result<Option<f64>, TableError> {
    let unit = match row.text("mem_kind") {
        Some(kind) if kind.starts_with("GiB") => f64::from(1 << 30),
        Some(_) | None => 1e9,
    };
    Ok(row.number("mem_gb")?.map(|number| number * unit))
}

fn parallelism(row: &Row) -> Result<Parallelism, TableError> {
    let (tp, pp) = (row.required("tp")?, row.required("pp")?);
    let of_replica = Degrees { dp: 1, cp: 1, tp, pp }.world_size();
    let dp = match (row.count("dp")?, row.count("gpus")?) {
        (Some(dp), Some(gpus)) if (Degrees { dp, cp: 1, tp, pp }).world_size() != gpus => {
            let degrees = Degrees { dp, cp: 1, tp, pp };
            let rule = format!("not {degrees} = {}; {CORRECTION}, or leave gpus or dp empty", degrees.world_size());
            return Err(row.refused("gpus", rule));
        }
        (Some(dp), _) => dp,
        (None, Some(gpus)) if gpus.is_multiple_of(of_replica) => gpus / of_replica,
        (None, Some(_)) => {
            let rule = format!("not a multiple of tp {tp} x pp {pp} = {of_replica}; {CORRECTION}");
            return Err(row.refused("gpus", rule));
        }
        (None, None) => 1,
    };
    let schedule = schedule(row)?;
    let sequence_parallel = match row.word("seq_parallel").as_deref() {
        Some("yes" | "true" | "on" | "1") => SequenceParallel::On,
        None | Some("no" | "false" | "off" | "0") => SequenceParallel::Off,
        Some(_) => return Err(row.beyond("seq_parallel", "none of yes and no")),
    };
    let recompute = match row.text("recompute") {
        None | Some("none") => Recompute::None,
        Some("full") => Recompute::Full(FullRecompute { every: 1, inputs: SavedInputs::Whole }),
        Some("selective") => Recompute::Selective,
        Some(word) if word.starts_with("selective") => {
            return Err(
                row.beyond("recompute", "another form of selective recomputation than that of the attention core")
            );
        }
        Some(_) => return Err(row.beyond("recompute", "none of none, selective and full")),
    };
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let zero = match row.text("zero") {
        None | Some("0") => ZeroStage::Off,
        Some("1") => ZeroStage::One,
        Some("2") => ZeroStage::Two { reduce: GradientReduction::Microbatch },
        Some("3") => ZeroStage::Three { reduce: GradientReduction::Microbatch, gathering },
        Some(_) => return Err(row.beyond("zero", "not one of 0, 1, 2 and 3")),
    };
    Ok(Parallelism {
        degrees: Degrees { dp, cp: 1, tp, pp },
        context: ContextParallel::DEFAULT,
        sequence_parallel,
        zero,
        shard_group: None,
        ep: 1,
        sum_tree: 1,
        schedule: schedule.into(),
        microbatch_size: row.count("micro_batch")?.unwrap_or(1),
        recompute,
        stage_layers: None,
        overlap: None,
    })
}

/// The schedule by its name in run files or papers. Without one, and by the names of 1F1B, the stages of each rank
/// decide.
fn schedule(row: &Row) -> Result<ScheduleKind, TableError> {
    let by_stages = match row.count("vpp")?.unwrap_or(1) {
        1 => ScheduleKind::OneForwardOneBackward,
        stages_per_rank => ScheduleKind::Interleaved { stages_per_rank },
    };
    match row.word("schedule").as_deref() {
        None | Some("none" | "1f1b" | "1f1b-i" | "1f1b-interleaved" | "interleaved" | "interleaved-1f1b") => {
            Ok(by_stages)
        }
        Some("gpipe" | "afab") => Ok(ScheduleKind::GPipe),
        Some("zb-h1") => Ok(ScheduleKind::ZeroBubbleH1),
        Some("zb-h2") => Ok(ScheduleKind::ZeroBubbleH2),
        Some("zb-v" | "zbv") => Ok(ScheduleKind::ZeroBubbleV),
        Some("zb-1p" | "zb1p") => Ok(ScheduleKind::ZeroBubbleAuto { memory_percent: 100 }),
        Some("zb-2p" | "zb2p") => Ok(ScheduleKind::ZeroBubbleAuto { memory_percent: 200 }),
        Some(_) => Err(row.beyond("schedule", "none of 1f1b, interleaved, gpipe, zb-h1, zb-h2, zb-v, zb-1p and zb-2p")),
    }
}

/// Megatron's stages have equally many layers, whatever the ends have besides.
fn even_stages(model: &ModelSpec, parallelism: &Parallelism) -> Option<Vec<usize>> {
    let stages = parallelism.degrees.pp * parallelism.schedule.stages_per_rank().unwrap_or(1);
    model.num_layers.is_multiple_of(stages).then(|| vec![model.num_layers / stages; stages])
}

fn train(row: &Row, sequence_length: usize) -> Result<TrainSpec, TableError> {
    let precision = match row.text("precision") {
        Some(word) if word.starts_with("fp16") => Precision::Fp16(Products::Chained, LossScaling::USUAL),
        Some(word) if word.starts_with("fp32") => Precision::Fp32(Products::Chained),
        None => Precision::Bf16(Products::Chained),
        Some(word) if word.starts_with("bf16") => Precision::Bf16(Products::Chained),
        Some(_) => return Err(row.beyond("precision", "none of fp16, bf16 and fp32")),
    };
    Ok(TrainSpec {
        steps: 1,
        global_batch: row.required("global_batch")?,
        batch_ramp: None,
        batch_origin: BatchOrigin::default(),
        sequence_length,
        learning_rate: 1e-4,
        min_learning_rate: 0.0,
        warmup_steps: 0,
        schedule: LearningRateSchedule::Constant,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        clip_norm: Some(1.0),
        embedding_gradient_scale: 1.0,
        ema_decay: None,
        schedule_steps: None,
        optimizer: config::Optimizer::AdamW,
        groups: vec![],
        anomalies: Anomalies::default(),
        precision,
        sums: GradientSums::Single,
        offload: config::Offload::None,
        seed: 0,
    })
}
