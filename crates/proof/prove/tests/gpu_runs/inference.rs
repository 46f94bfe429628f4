//! Evaluation, logits and generated text.

use std::sync::Mutex;

use config::{Overlap, Tied, ZeroStage};
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::soft_gpus::soft_gpus;
use train::{
    Evaluation, Generation, Listener, LogitsSink, Sampling, Setup, StopRequest, run_evaluation, run_forward,
    run_generation,
};

use crate::gpu_runs::rig::{On, layout};

#[derive(Default)]
struct Kept {
    /// `(sequence, first token, bits)`, in no order.
    logits: Mutex<Vec<(u64, usize, Vec<u32>)>>,
    tokens: Mutex<Vec<i32>>,
}

impl LogitsSink for Kept {
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]) {
        let bits = logits.iter().map(|logit| logit.to_bits()).collect();
        self.logits.lock().expect("no panic").push((sequence, first_token, bits));
    }
}

impl Listener for Kept {
    fn token(&self, token: i32) -> StopRequest {
        self.tokens.lock().expect("no panic").push(token);
        StopRequest::None
    }
}

/// Loss of an evaluation; logits and loss of a forward pass; a text.
type Inference = (f64, Vec<(u64, usize, Vec<u32>)>, f64, Vec<i32>);

fn infer(Layout { model, parallelism, train }: &Layout, on: &On) -> Inference {
    let of = || (model.clone(), parallelism.clone(), train.clone());
    let (kept, tokens) = (Kept::default(), proof_text());
    let (one, two, three) = of();
    let setup = Setup::evaluation(one, two, three, 30).expect("a plan");
    let evaluation = Evaluation { tokens: &tokens, sequences: 30, every: 0 };
    let measured = run_evaluation(&setup, &*on.engine(&setup), evaluation, None).expect("a loss");
    let (one, two, three) = of();
    let setup = Setup::forward(one, two, three).expect("a plan");
    let forward = run_forward(&setup, &*on.engine(&setup), &tokens, None, &kept).expect("logits");
    let (one, two, three) = of();
    let setup = Setup::generation(one, two, three, 4).expect("a plan");
    let sampling = Sampling { temperature: 0.8, top_k: Some(40), top_p: 0.95, seed: 5 };
    let generation = Generation { prompt: &[1, 7, 3, 9, 2], max_tokens: 6, sampling };
    run_generation(&setup, &*on.engine(&setup), generation, None, &kept).expect("a text");
    let mut logits = kept.logits.into_inner().expect("no panic");
    logits.sort();
    (measured.loss, logits, forward.loss, kept.tokens.into_inner().expect("no panic"))
}

#[needs::cuda]
#[test]
fn losses_logits_and_texts_have_the_same_bits() {
    for (tied, overlap, num_gpus) in [(Tied::Yes, Overlap::On, 4), (Tied::No, Overlap::Off, 1)] {
        let gpus = soft_gpus(num_gpus);
        let layout = layout(tied, [1, 2, 2], ZeroStage::Off, overlap, 1);
        let on_cpus = infer(&layout, &On::Cpus);
        assert!(infer(&layout, &On::Gpus(gpus)) == on_cpus, "{tied:?}");
        assert_eq!((on_cpus.1.is_empty(), on_cpus.3.len()), (false, 6));
    }
}
