//! The list of a run's products, next to the products that its ranks submit.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use config::RunConfig;
use mesh::Coord;
use sync::lock;
use testkit::intercepted::intercept_ops;
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{Observer, Ports, RankEngine, RunProduct, Setup, StepReport, StopRequest, run, run_products};

struct QuietObserver;

impl Observer for QuietObserver {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }
}

type Products = Mutex<HashSet<RunProduct>>;

fn setup(more: &[&str]) -> Setup {
    let all = ["train.sequence_length=32", "train.global_batch=8", "train.steps=2", "train.warmup_steps=1"];
    let all = all.into_iter().chain(["train.precision=bf16", "parallelism.microbatch_size=1"]);
    let overrides: Vec<String> = all.chain(more.iter().copied()).map(String::from).collect();
    let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).expect("legal");
    Setup::new(model, parallelism, train).expect("a plan")
}

/// Two steps on cores, whose operations are those of every device.
#[test]
fn the_list_has_every_product_of_a_run() {
    let cases: [&[&str]; 4] = [
        &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"],
        &["parallelism.dp=2", "parallelism.tp=2", "parallelism.pp=2", "parallelism.zero=3"],
        &["parallelism.dp=1", "parallelism.tp=2", "parallelism.pp=3", "parallelism.recompute=full"],
        &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=2", "parallelism.cp=2"],
    ];
    for case in cases {
        let setup = setup(case);
        let words = ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every };
        let products: Arc<Products> = Arc::default();
        let wrap = |_: Coord, rank: RankEngine| {
            let products = Arc::clone(&products);
            intercept_ops(rank, move |device, stream, op| {
                lock(&products).extend(RunProduct::of(op, stream));
                device.submit(stream, op)
            })
        };
        run(&setup, &WrappedEngine::new(&setup, &wrap), Ports::new(&words, &QuietObserver)).expect("a run");
        let listed: HashSet<RunProduct> = run_products(&setup, &words).expect("a list").into_iter().collect();
        let submitted = lock(&products);
        assert!(submitted.len() >= 6, "{case:?}: {}", submitted.len());
        assert_eq!(listed, *submitted, "{case:?}");
    }
}
