//! Runs that were never trained, the same every time.

use report::{Block, Fact, MemoryPlan, Metrics, Run, StageMemory, StageTime, Timeline, TimelineSource};

const RUN_FILE: &str = "[model]\nnum_layers = 6\nhidden = 128\nnum_heads = 4\nvocabulary = 1024\ncontext = 128\n\n\
    [parallelism]\ndp = 2\ntp = 2\npp = 4\nzero = 1\nschedule = \"1f1b\"\n\n\
    [train]\nsteps = 1000\nglobal_batch = 16\nlearning_rate = 0.003\nprecision = \"fp16\"\n\n\
    [data]\ntokenizer = \"bpe\"\n\n[run]\nfolder = \"runs/sample\"\nranks = 16\n";

/// A run of `steps` steps, with a spike, skipped steps, a value that is not a number, and a resumption.
pub fn run(name: &str, steps: u32) -> Run {
    let mut noise = Noise(7);
    let mut lines = String::new();
    for step in 1..=steps {
        lines += &step_line(step, steps, &mut noise);
        if step % (steps / 20) == 0 {
            let loss = loss(step, steps) + 0.1;
            lines +=
                &format!("{{\"step\":{step},\"held_out_loss\":{loss},\"held_out_tokens\":1000,\"seconds\":0.5}}\n");
        }
        if step == steps * 3 / 5 {
            lines += &format!(
                "{{\"event\":\"spike\",\"step\":{step},\"text\":\"the loss is 12 deviations above its median\"}}\n"
            );
        }
        if step == steps * 2 / 5 {
            lines += &format!(
                "{{\"event\":\"resumed\",\"step\":{step},\"text\":\"after step {step}, with parallelism.tp from 1 to 2\"}}\n"
            );
        }
    }
    let fact = |subject: &str, text: &str| Fact { subject: subject.into(), text: text.into() };
    Run {
        name: name.into(),
        facts: vec![
            fact("model", "1,337,344 parameters: 6 layers, hidden 128, 4 heads"),
            fact("ranks", "16 = dp 2 x tp 2 x pp 4"),
            fact("step", "2,048 tokens: 16 sequences of 128, 8 microbatches of 1 per replica"),
        ],
        run_file: RUN_FILE.into(),
        metrics: Metrics::parse(&lines),
        memory: Some(memory()),
        timeline: Some(timeline(4, 8)),
    }
}

/// A run whose first step has not ended.
pub fn empty() -> Run {
    Run { name: "empty".into(), run_file: RUN_FILE.into(), ..Run::default() }
}

/// Nine runs, more than there are colours: without steps, with one, far from the first, with names that are long or
/// look like HTML.
pub fn odd() -> Vec<Run> {
    let named = |name: String, lines: &str| Run {
        name,
        run_file: RUN_FILE.into(),
        metrics: Metrics::parse(lines),
        ..Run::default()
    };
    let far = (9_007_199_254_740_993u64..)
        .take(9)
        .map(|step| format!("{{\"step\":{step},\"loss\":1e17,\"total_tokens\":{step}}}\n"));
    let mut runs = vec![
        empty(),
        named("one".into(), "{\"step\":1,\"loss\":4.0,\"grad_norm\":1e-320}\n"),
        named("far".into(), &far.collect::<String>()),
        named("</script><b>\"quo'te\"&\n名前".into(), "{\"step\":1,\"loss\":1e308}\n{\"step\":2,\"loss\":-1e308}\n"),
        named("long".repeat(50), "{\"step\":3,\"loss\":0}\n{\"step\":3,\"held_out_loss\":0}\n"),
    ];
    runs.extend((0..4).map(|number| run(&format!("run-{number}"), 40 + number)));
    runs
}

/// A run that became NaN, with more events than a page lists, and long words in one of them.
pub fn broken() -> Run {
    let step =
        |step: u32| format!("{{\"step\":{step},\"loss\":\"NaN\",\"grad_norm\":\"-Infinity\",\"peak_share\":null}}\n");
    let event = |step: u32| {
        format!("{{\"event\":\"other\",\"step\":{step},\"text\":\"{}\"}}\n", "word".repeat(step as usize % 90))
    };
    let lines: String = (1..=600).map(|number| step(number) + &event(number)).collect();
    Run { name: "broken".into(), run_file: RUN_FILE.into(), metrics: Metrics::parse(&lines), ..Run::default() }
}

/// Numbers from 0 to 1 that look drawn by chance.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

fn loss(step: u32, steps: u32) -> f64 {
    let time = f64::from(step) / f64::from(steps);
    let since_spike = (time - 0.6) * 400.0;
    let spike = if since_spike >= 0.0 { 1.5 * (-since_spike).exp() } else { 0.0 };
    1.8 + 5.2 * (-6.0 * time).exp() + spike
}

fn step_line(step: u32, steps: u32, noise: &mut Noise) -> String {
    let time = f64::from(step) / f64::from(steps);
    let skipped = u32::from(step >= steps / 4) + u32::from(step > steps / 4);
    let loss = loss(step, steps) + 0.2 * (noise.next() - 0.5);
    let norm = match step == steps / 4 {
        true => "\"Infinity\"".to_string(),
        false => (0.5 + 2.0 * (-8.0 * time).exp() + 0.3 * noise.next()).to_string(),
    };
    let rate = 3e-3 * if time < 0.05 { time / 0.05 } else { 0.55 + 0.45 * (3.3 * (time - 0.05)).cos() };
    let speed = 4000.0 * (0.95 + 0.1 * noise.next()) * if step.is_multiple_of(steps / 10) { 0.6 } else { 1.0 };
    let scale = 65536.0 / f64::from(1 << skipped);
    let seconds = 2048.0 / speed;
    let resident = 100_000_000 + 20_000_000 * u64::from(step > steps / 10);
    format!(
        "{{\"step\":{step},\"loss\":{loss},\"learning_rate\":{rate},\"grad_norm\":{norm},\"tokens\":2048,\"seconds\":{seconds},\
         \"tokens_per_second\":{speed},\"peak_share\":{},\"resident_bytes\":{resident},\"loss_scale\":{scale},\"skipped_steps\":{skipped}}}\n",
        speed / 8000.0
    )
}

fn memory() -> MemoryPlan {
    let parts = |activations: u64| {
        let sizes = [
            ("parameters", 1_610_000),
            ("gradients", 1_610_000),
            ("optimizer", 1_610_000),
            ("constants", 192),
            ("batches", 10_240),
            ("activations", activations),
            ("transfers", 262_000),
            ("scratch", 793_000),
        ];
        sizes.map(|(name, bytes)| (name.to_string(), bytes)).to_vec()
    };
    let stage = |pp: u64| StageMemory { name: format!("pp {pp}"), parts: parts(7_000_000 - 1_500_000 * pp) };
    MemoryPlan { stages: (0..4).map(stage).collect(), arenas_bytes: 150_000_000, resident_bytes: Some(180_000_000) }
}

/// GPipe: forward passes of 10 ms, then backward passes of 20.
fn timeline(stages: u32, microbatches: u32) -> Timeline {
    let (forward, backward) = (10_000.0, 20_000.0);
    let half = forward * f64::from(microbatches + stages - 1);
    let end_us = half + backward * f64::from(microbatches + stages - 1) + 5_000.0;
    let stage = |pp: u32| {
        let mut blocks = vec![];
        for microbatch in 0..microbatches {
            let at = forward * f64::from(microbatch + pp);
            blocks.push(Block("forward".into(), Some(microbatch), at, at + forward));
            blocks.push(Block("communication".into(), Some(microbatch), at + forward, at + forward + 2_000.0));
        }
        for microbatch in 0..microbatches {
            let at = half + backward * f64::from(microbatch + stages - 1 - pp);
            blocks.push(Block("backward".into(), Some(microbatch), at, at + backward));
        }
        blocks.push(Block("norm and update".into(), None, end_us - 5_000.0, end_us));
        let spent = [("forward", forward), ("backward", backward)];
        let spent = spent.map(|(kind, time)| (kind.to_string(), time * f64::from(microbatches)));
        let update = ("norm and update".to_string(), 5_000.0);
        StageTime { name: format!("pp {pp}"), blocks, spent: spent.into_iter().chain([update]).collect() }
    };
    Timeline { source: TimelineSource::Measured, step: 1000, end_us, stages: (0..stages).map(stage).collect() }
}
