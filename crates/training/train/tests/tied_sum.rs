//! When the embedding's sum of a tied table's gradient is made: a step never needs more memory for it than with the
//! other form.

use config::{RunConfig, TiedSum};
use program::least_memory;
use train::StepOrder;

#[test]
fn the_form_that_needs_less_is_taken() {
    let mut late = 0;
    for (recompute, norm, dropout) in
        [("none", false, 0.0), ("none", true, 0.1), ("full", false, 0.1), ("full", true, 0.0)]
    {
        for num_microbatches in [1, 2, 4, 8, 16, 32, 48, 64, 65, 96] {
            let overrides = [
                "model.vocabulary=2048".to_string(),
                format!("model.embedding_norm={norm}"),
                format!("model.dropout={dropout}"),
                "train.sequence_length=16".into(),
                format!("train.global_batch={num_microbatches}"),
                format!("parallelism.recompute={recompute}"),
                "parallelism.dp=1".into(),
                "parallelism.tp=1".into(),
                "parallelism.pp=1".into(),
                "parallelism.microbatch_size=1".into(),
            ];
            let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).unwrap();
            let order = StepOrder::new(&model, &parallelism, &train).unwrap();
            let least_bytes = |tied_sum| {
                let mut order = order.clone();
                order.tied_sum = tied_sum;
                let (program, sizes) = order.rank_program(0).unwrap();
                least_memory(&program, &sizes)
            };
            let [early_bytes, late_bytes] = [TiedSum::EachMicrobatch, TiedSum::EndOfStep].map(least_bytes);
            let what = format!("{overrides:?}: {early_bytes} with each, {late_bytes} at the end");
            match order.tied_sum {
                TiedSum::EachMicrobatch => assert!(early_bytes <= late_bytes, "{what}"),
                TiedSum::EndOfStep => assert!(late_bytes < early_bytes, "{what}"),
            }
            late += usize::from(order.tied_sum == TiedSum::EndOfStep);
        }
    }
    assert!((4..36).contains(&late), "{late} of 40 at the end");
}

/// The figures in the documentation of [`TiedSum`].
#[test]
fn a_late_sum_saves_what_its_documentation_says() {
    let gpt2 = ["model.num_layers=12", "model.hidden=768", "model.num_heads=12", "model.vocabulary=50257"];
    let wide = ["model.num_layers=24", "model.hidden=2048", "model.num_heads=16", "model.vocabulary=250880"];
    for (model, tokens, microbatch_size, expected_megabytes) in
        [(gpt2, 1024, 4, [3330, 3195]), (wide, 2048, 1, [35_577, 33_547])]
    {
        let mut overrides: Vec<String> = model.iter().map(ToString::to_string).collect();
        overrides.extend([
            format!("model.context={tokens}"),
            format!("train.sequence_length={tokens}"),
            format!("train.global_batch={}", 4 * microbatch_size),
            format!("parallelism.microbatch_size={microbatch_size}"),
            "train.precision=\"bf16\"".into(),
            "parallelism.dp=1".into(),
            "parallelism.tp=1".into(),
            "parallelism.pp=1".into(),
        ]);
        let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).unwrap();
        let order = StepOrder::new(&model, &parallelism, &train).unwrap();
        assert_eq!(order.tied_sum, TiedSum::EndOfStep);
        let megabytes = [TiedSum::EachMicrobatch, TiedSum::EndOfStep].map(|tied_sum| {
            let mut order = order.clone();
            order.tied_sum = tied_sum;
            let (program, sizes) = order.rank_program(0).unwrap();
            (least_memory(&program, &sizes) as f64 / 1e6).round() as u64
        });
        assert_eq!(megabytes, expected_megabytes);
    }
}
