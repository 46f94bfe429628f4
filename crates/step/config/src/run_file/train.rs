//! The section `[train]`.

use super::keys::{Idle, Keys, Variants, either, keys, where_first, without, without_known};
use super::table::{Fields, Table, tables};
use super::value::{Item as _, PowerOfTwo};
use crate::anomalies::Anomalies;
use crate::batch::{BatchGrowth, BatchOrigin, BatchRamp};
use crate::data_spec::DeviceChoice;
use crate::learning_rate::{DecayLength, DecayShape, LearningRateSchedule};
use crate::names::Names as _;
use crate::offload::Offload;
use crate::optimizer::{Muon, MuonScale, Optimizer};
use crate::parameter_groups::ParameterGroup;
use crate::precision::{Format, GradientSums, LossScaling, Precision, Products};
use crate::problem::Problem;
use crate::training::TrainSpec;
use crate::trusted::Consequence;

const RUNNING_MEAN: &str = "must be the decay of a running mean";

// `context` is the default of the sequence length.
keys! { keys, train: TrainSpec, context: usize;
    steps = 240, .positive().megatron("train_iters");
    global_batch = 16, .positive().megatron("global_batch_size");
    batch_ramp = None => {
        let ramp = keys.judged(Consequence::Within, "batch_ramp", &mut train.batch_ramp);
        ramp.megatron("rampup_batch_size: a table of start, increment and sequences");
    };
    batch_origin = BatchOrigin::default() => {};
    sequence_length = 128, .or(context).positive().megatron("seq_length");
    learning_rate = 1e-3, .megatron("lr")
        .must(|peak| *peak > 0.0 && *peak <= 1.0, "must be a learning rate", "use more than 0 and at most 1");
    min_learning_rate = 1e-4, .or(a_tenth(train.learning_rate)).megatron("min_lr");
    schedule_steps = None => {
        keys.key("schedule_steps", &mut train.schedule_steps).megatron("lr_decay_iters");
        train.schedule_steps = train.schedule_steps.filter(|steps| *steps != 0);
    };
    warmup_steps = 60, .or((train.schedule_steps.unwrap_or(train.steps) / 4).min(100)).megatron("lr_warmup_iters");
    schedule = LearningRateSchedule::Cosine => { schedule(keys, train) };
    optimizer = Optimizer::AdamW => { optimizer(keys, &mut train.optimizer) };
    weight_decay = 0.1, .must(|decay| *decay >= 0.0, "makes weights grow", "use 0 or more");
    beta1 = 0.9, .below_one(RUNNING_MEAN).megatron("adam_beta1");
    beta2 = 0.95, .below_one(RUNNING_MEAN).megatron("adam_beta2");
    epsilon = 1e-8, .above_zero("must be more than 0", "use 1e-8").megatron("adam_eps");
    clip_norm = Some(1.0) => {
        let mut norm = train.clip_norm.unwrap_or(0.0);
        let key = keys.key("clip_norm", &mut norm).megatron("clip_grad");
        key.must(|norm| *norm >= 0.0, "must not be negative", "use 0 for no clipping, or more");
        train.clip_norm = (norm != 0.0).then_some(norm);
    };
    embedding_gradient_scale = 1.0, .must(
        |scale| *scale > 0.0 && *scale <= 1.0, "must be a factor", "use more than 0 and at most 1"
    );
    ema_decay = None => {
        keys.key("ema_decay", &mut train.ema_decay).below_one(RUNNING_MEAN).megatron("ema: the decay, such as 0.999");
        train.ema_decay = train.ema_decay.filter(|decay| *decay != 0.0);
    };
    groups = vec![] => {
        let groups = keys.judged(Consequence::Within, "groups", &mut train.groups);
        groups.megatron("decoupled_lr: a group of the tables, with learning_rate_scale");
    };
    precision = Precision::Fp32(Products::Chained) => { precision(keys, &mut train.precision) };
    sums = GradientSums::Single;
    [quiet] offload = Offload::None, .megatron("optimizer_cpu_offload: write \"optimizer\"; updates stay on the GPU")
        .megatron("fine_grained_activation_offloading: write \"activations\"")
        .megatron("cpu_offloading: write \"activations\"");
    anomalies = Anomalies::default() => {
        keys.key("on_nonfinite", &mut train.anomalies.on_nonfinite);
        keys.key("on_spike", &mut train.anomalies.on_spike);
        let is_score = |score: &f32| (3.0..=1000.0).contains(score);
        let score = keys.key("spike_score", &mut train.anomalies.spike_score);
        score.must(is_score, "must be a number of deviations", "use 3 to 1000, such as 8.0");
    };
    seed = 0;
}

/// A tenth in decimal, as a person would write it: that of 0.001 is 0.0001, not 0.000100000005.
fn a_tenth(number: f32) -> f32 {
    number.to_string().parse::<f64>().map_or(number / 10.0, |number| (number / 10.0) as f32)
}

fn schedule(keys: &mut Keys<'_>, train: &mut TrainSpec) {
    use LearningRateSchedule::{Constant, Cosine, CosineRestarts, Linear, WarmupStableDecay};
    let first_steps = (train.steps / 4).max(1);
    let schedules: &Variants<LearningRateSchedule> = &[
        ("cosine", Cosine),
        ("linear", Linear),
        ("constant", Constant),
        ("wsd", WarmupStableDecay { decay: DecayLength::Share(0.2), shape: DecayShape::Linear }),
        ("cosine-restarts", CosineRestarts { first_steps, growth: 1 }),
    ];
    keys.megatron("schedule", "lr_decay_style");
    keys.variants("schedule", &mut train.schedule, schedules, without_known, |keys, schedule| match schedule {
        Cosine | Linear | Constant => {}
        WarmupStableDecay { decay, shape } => {
            keys.key("decay_length", decay).megatron("lr_wsd_decay_iters");
            keys.key("decay_shape", shape).megatron("lr_wsd_decay_style");
        }
        CosineRestarts { first_steps, growth } => {
            keys.key("restart_steps", first_steps).positive();
            keys.key("restart_growth", growth).positive();
        }
    });
}

fn optimizer(keys: &mut Keys<'_>, optimizer: &mut Optimizer) {
    let muon = Optimizer::Muon(Muon { momentum: 0.95, scale: MuonScale::AdamW });
    let optimizers: &Variants<Optimizer> = &[("adamw", Optimizer::AdamW), ("muon", muon)];
    keys.megatron("optimizer", "muon: write \"muon\"");
    keys.variants("optimizer", optimizer, optimizers, without, |keys, optimizer| match optimizer {
        Optimizer::AdamW => {}
        Optimizer::Muon(Muon { momentum, scale }) => {
            keys.key("muon_momentum", momentum).below_one(RUNNING_MEAN);
            keys.key("muon_scale", scale);
        }
    });
}

fn precision(keys: &mut Keys<'_>, precision: &mut Precision) {
    let products = Products::Chained;
    let precisions: &Variants<Precision> = &[
        (Format::Fp32.name(), Precision::Fp32(products)),
        (Format::Bf16.name(), Precision::Bf16(products)),
        (Format::Fp16.name(), Precision::Fp16(products, LossScaling::USUAL)),
    ];
    let idle = |idle: &Idle<'_>| {
        let (rule, _) = where_first(idle)?;
        Some((rule, format!("write train.precision = \"fp16\", or leave {} out", idle.key)))
    };
    keys.megatron("precision", "fp16: write \"fp16\"");
    keys.megatron("precision", "bf16: write \"bf16\"");
    keys.variants("precision", precision, precisions, idle, |keys, precision| {
        let format = precision.stored();
        let (products, scaling) = match precision {
            Precision::Fp32(products) | Precision::Bf16(products) => (products, None),
            Precision::Fp16(products, scaling) => (products, Some(scaling)),
        };
        keys.key("products", products);
        multiplied(keys, products, format);
        let Some(LossScaling { initial, window, hysteresis, minimum }) = scaling else { return };
        power_of_two(keys, "initial_loss_scale", initial);
        keys.megatron("initial_loss_scale", "initial_scale_power: 2 to that power");
        keys.key("loss_scale_window", window).positive();
        keys.key("loss_scale_hysteresis", hysteresis).positive().megatron("hysteresis");
        power_of_two(keys, "min_loss_scale", minimum);
    });
}

fn power_of_two(keys: &mut Keys<'_>, name: &'static str, slot: &mut f32) {
    let mut scale = PowerOfTwo(*slot);
    keys.key(name, &mut scale);
    *slot = scale.0;
}

/// Chained products where those that are written are not defined for `format`, which is reported.
fn multiplied(keys: &mut Keys<'_>, products: &mut Products, format: Format) {
    let Some(reader) = keys.chosen_reader().filter(|_| !products.multiplies(format)) else { return };
    let device = reader.text_beside("run.device").and_then(DeviceChoice::of_name).unwrap_or(DeviceChoice::Cpu);
    let formats = Format::ALL.into_iter().filter(|format| products.multiplies(*format));
    let formats = either(&formats.map(|format| format.written()).collect::<Vec<_>>());
    let orders = Products::ALL.into_iter().filter(|order| order.multiplies(format) && order.is_of(device));
    let orders = either(&orders.map(|order| order.written()).collect::<Vec<_>>());
    let rule = format!("must have train.precision = {formats}; got {}", format.written());
    reader.report(Problem::of_value(
        "train.products",
        products.written(),
        rule,
        format!("use train.products = {orders}"),
    ));
    *products = Products::Chained;
}

impl Table for BatchRamp {
    const WANTED: &'static str = "a ramp such as { start = 4, increment = 4, sequences = 1000 }";

    fn fields(&mut self, fields: &mut Fields<'_>) {
        let mut sequences = self.sequences as usize;
        fields.required("start", &mut self.start);
        fields.required("increment", &mut self.increment);
        fields.required("sequences", &mut sequences);
        self.sequences = sequences as u64;
        // As short as it can be.
        let mut grows = (fields.reads() || self.grows != BatchGrowth::Microbatches).then_some(self.grows);
        fields.field("grows", &mut grows);
        self.grows = grows.unwrap_or(self.grows);
    }
}

impl Table for ParameterGroup {
    const LIST: &'static str =
        "a list of groups such as [{ parameters = [\"embedding.*\"], learning_rate_scale = 0.5, weight_decay = 0.0 }]";

    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.required("parameters", &mut self.parameters);
        fields.field("learning_rate_scale", &mut self.learning_rate_scale);
        fields.field("weight_decay", &mut self.weight_decay);
    }
}

tables! {
    BatchRamp = BatchRamp { start: 0, increment: 0, sequences: 0, grows: BatchGrowth::Microbatches };
    ParameterGroup = ParameterGroup { parameters: vec![], learning_rate_scale: 1.0, weight_decay: None };
}
