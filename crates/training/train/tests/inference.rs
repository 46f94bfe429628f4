//! Logits and generated text: the same whatever the layout, and the same with a cache as without.

use std::sync::Mutex;

use config::{
    Balance, ExpertGroups, ExpertsSpec, Gathering, GradientReduction, IGNORED_LABEL, LocalAttention, ModelSpec,
    Parallelism, QkNorm, Reach, Reshard, RouterScores, RouterWeights, Routing, SequenceParallel, SharedExpert,
    SharedGate, TopQuery, TrainSpec, ZeroStage,
};
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use train::{
    GENERATION_ROWS, Generation, Listener, LogitsSink, Sampling, SequenceBuffers, Setup, StopRequest, TensorMap,
    TokenSource, run_forward, run_generation,
};

/// Both styles, and one with experts: softmax scores over all of them, and groups of sigmoid scores with a shared
/// expert.
fn models() -> Vec<(String, ModelSpec)> {
    let routing = |scores, groups| Routing { scores, weights: RouterWeights::Normalised, scale: 1.0, groups };
    let with = |routing, shared| {
        let (first_layer, layer_interval) = (1, 2);
        let experts = ExpertsSpec {
            number: 8,
            per_token: 2,
            hidden: 32,
            shared,
            first_layer,
            layer_interval,
            routing,
            balance: Balance::NONE,
        };
        ModelSpec { experts: Some(experts), ..model(Style::Llama) }
    };
    let (groups, shared) =
        (ExpertGroups { number: 4, kept: 2 }, SharedExpert { hidden: 24, gate: SharedGate::Learned });
    vec![
        (Style::Gpt2.to_string(), model(Style::Gpt2)),
        (Style::Llama.to_string(), model(Style::Llama)),
        ("experts".into(), with(routing(RouterScores::Softmax, None), None)),
        ("groups of experts".into(), with(routing(RouterScores::Sigmoid, Some(groups)), Some(shared))),
    ]
}

fn model(style: Style) -> ModelSpec {
    // Keys of more than one tile. One style has query and key norms, whose output is what the cache keeps, the other
    // attention in the head, too. Windows are shorter than a tile, and longer.
    let windows =
        |window, pattern: &[Reach]| Some(LocalAttention { window, pattern: pattern.to_vec(), rotary_base: None });
    let plain = ModelSpec { num_layers: 4, context: 96, ..proof_model(style, 4, true) };
    match style {
        Style::Gpt2 => {
            let local_attention = windows(20, &[Reach::Local, Reach::Global]);
            ModelSpec { top_query: TopQuery::On, local_attention, logit_soft_cap: Some(4.0), ..plain }
        }
        Style::Llama => {
            let local_attention = windows(70, &[Reach::Local]);
            ModelSpec { qk_norm: QkNorm::Heads, local_attention, embedding_scale: Some(2.0), ..plain }
        }
    }
}

/// Given sequences, the next token of each as its label.
struct Given {
    sequences: Vec<Vec<i32>>,
}

impl TokenSource for Given {
    fn fill(&self, _step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let tokens = &self.sequences[sequence as usize];
        buffers.tokens.copy_from_slice(tokens);
        buffers.labels.fill(IGNORED_LABEL);
        buffers.labels[..tokens.len() - 1].copy_from_slice(&tokens[1..]);
        for place in 0..tokens.len() {
            buffers.positions[place] = place as i32;
            buffers.visible[2 * place] = 0;
            buffers.visible[2 * place + 1] = place as i32 + 1;
        }
    }
}

#[derive(Default)]
struct Kept {
    logits: Mutex<Vec<(u64, Vec<f32>)>>,
    tokens: Mutex<Vec<i32>>,
}

impl LogitsSink for Kept {
    fn put(&self, sequence: u64, _first_token: usize, logits: &[f32]) {
        self.logits.lock().expect("no panic").push((sequence, logits.to_vec()));
    }
}

impl Listener for Kept {
    fn token(&self, token: i32) -> StopRequest {
        let mut tokens = self.tokens.lock().expect("no panic");
        tokens.push(token);
        StopRequest::None
    }

    fn logits(&self, position: usize, logits: &[f32]) {
        self.put(position as u64, 0, logits);
    }
}

impl Kept {
    fn logits(self) -> Vec<(u64, Vec<f32>)> {
        let mut logits = self.logits.into_inner().expect("no panic");
        logits.sort_by_key(|(place, _)| *place);
        logits
    }
}

/// Logits by sequence, and the loss.
fn forward(model: &ModelSpec, parallelism: &Parallelism, sequences: &[Vec<i32>]) -> (Vec<Vec<f32>>, f64) {
    let train = TrainSpec { global_batch: sequences.len(), sequence_length: sequences[0].len(), ..proof_training() };
    let setup = Setup::forward(model.clone(), parallelism.clone(), train).expect("a legal run");
    let (given, kept) = (Given { sequences: sequences.to_vec() }, Kept::default());
    let report = run_forward(&setup, &*engine(&setup, 1), &given, None, &kept).expect("a forward pass");
    let logits = kept.logits();
    assert!(logits.iter().map(|(sequence, _)| *sequence).eq(0..sequences.len() as u64));
    (logits.into_iter().map(|(_, logits)| logits).collect(), report.loss)
}

/// Parameters sharded over `dp` replicas.
fn sharded(dp: usize, pp: usize) -> Parallelism {
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let zero = ZeroStage::Three { reduce: GradientReduction::Step, gathering };
    Parallelism { zero, ..plain_layout(dp, 1, pp, 1) }
}

fn sequences(count: usize, length: usize, vocabulary: usize) -> Vec<Vec<i32>> {
    let token = |sequence: usize, place: usize| ((place * place * 7 + place + sequence * 13) % vocabulary) as i32;
    (0..count).map(|sequence| (0..length).map(|place| token(sequence, place)).collect()).collect()
}

/// Cross-entropy of the next tokens, in double precision.
fn loss_of(logits: &[Vec<f32>], sequences: &[Vec<i32>], vocabulary: usize) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (logits, tokens) in logits.iter().zip(sequences) {
        for (row, next) in logits.chunks(vocabulary).zip(&tokens[1..]) {
            let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            sum += total.ln() - f64::from(row[*next as usize]);
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn logits_do_not_depend_on_the_layout() {
    for (name, model) in models() {
        let sequences = sequences(4, 40, model.vocabulary);
        let (oracle, oracle_loss) = forward(&model, &plain_layout(1, 1, 1, 1), &sequences);
        assert!(oracle.iter().all(|logits| logits.len() == 40 * model.vocabulary));
        let expected = loss_of(&oracle, &sequences, model.vocabulary);
        assert!((oracle_loss - expected).abs() < 1e-5, "{oracle_loss} {expected}");
        for (dp, pp, microbatch_size) in [(1, 2, 1), (2, 4, 1), (1, 1, 4), (2, 1, 2)] {
            let (logits, loss) = forward(&model, &plain_layout(dp, 1, pp, microbatch_size), &sequences);
            assert!(logits == oracle && loss == oracle_loss, "{name}, dp {dp}, pp {pp}, microbatch {microbatch_size}");
        }
        let (logits, loss) = forward(&model, &sharded(2, 2), &sequences);
        assert!(logits == oracle && loss == oracle_loss, "{name}, gathered parameters");
        for tp in [2, 4] {
            // A vocabulary of 61 is padded. Sums of two or four parts instead of one: a few roundings of 2^-24 per
            // layer.
            let (logits, loss) = forward(&model, &plain_layout(1, tp, 2, 2), &sequences);
            let pairs = logits.iter().flatten().zip(oracle.iter().flatten());
            let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(
                largest < 1e-5 && (loss - oracle_loss).abs() < 1e-5,
                "{name}, tp {tp}: {largest}, {loss} {oracle_loss}"
            );
            // Sharding the tokens of an evaluation adds the same terms in the same order.
            let (shared_logits, shared_loss) = forward(&model, &shared(plain_layout(1, tp, 2, 2)), &sequences);
            assert!(logits == shared_logits && loss == shared_loss, "{name}, tp {tp}: {loss} {shared_loss}");
        }
    }
}

fn shared(layout: Parallelism) -> Parallelism {
    Parallelism { sequence_parallel: SequenceParallel::On, ..layout }
}

const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: Some(40), top_p: 0.95, seed: 5 };

fn generate(model: &ModelSpec, parallelism: &Parallelism, prompt: &[i32], max_tokens: usize) -> (Vec<i32>, Kept) {
    let setup =
        Setup::generation(model.clone(), parallelism.clone(), proof_training(), GENERATION_ROWS).expect("a legal run");
    let kept = Kept::default();
    let generation = Generation { prompt, max_tokens, sampling: SAMPLING };
    run_generation(&setup, &*engine(&setup, 1), generation, None, &kept).expect("a text");
    let tokens = std::mem::take(&mut *kept.tokens.lock().expect("no panic"));
    (tokens, kept)
}

#[test]
fn the_cache_changes_no_bit() {
    for (name, model) in models() {
        for prompt_len in [1, GENERATION_ROWS, 21] {
            let prompt = sequences(1, prompt_len, model.vocabulary).remove(0);
            let added = model.context - prompt_len;
            let (tokens, kept) = generate(&model, &plain_layout(1, 1, 1, 1), &prompt, added);
            assert_eq!(tokens.len(), added);
            let text: Vec<i32> = prompt.iter().chain(&tokens).copied().collect();
            let (whole, _) = forward(&model, &plain_layout(1, 1, 1, 1), std::slice::from_ref(&text));
            for (position, logits) in kept.logits() {
                let before = (position as usize - 1) * model.vocabulary;
                assert!(logits == whole[0][before..before + model.vocabulary], "{name}, token {position}");
            }
        }
    }
}

/// The refusal of a text by a model whose weights all have one value.
fn refused_with(weight: f32) -> String {
    let model = model(Style::Llama);
    let setup = Setup::generation(model.clone(), plain_layout(1, 1, 2, 1), proof_training(), GENERATION_ROWS)
        .expect("a legal run");
    let mut weights = TensorMap::default();
    for unit in std::iter::once(config::Unit::Table).chain(config::Unit::computing(model.num_layers)) {
        for param in config::params(&model, unit) {
            weights.insert(&param.name, &param.shape, vec![weight; param.len()]);
        }
    }
    let kept = Kept::default();
    let generation = Generation { prompt: &[1, 2, 3], max_tokens: 4, sampling: SAMPLING };
    let said = run_generation(&setup, &*engine(&setup, 1), generation, Some(&weights), &kept).expect_err("no text");
    assert_eq!(kept.tokens.into_inner().expect("no panic"), Vec::<i32>::new());
    said.to_string()
}

#[test]
fn weights_or_activations_that_are_not_finite_draw_no_token() {
    let of_weights = refused_with(f32::NAN);
    assert!(of_weights.contains("embedding.token.weight has a value that is NaN"), "{of_weights}");
    let of_activations = refused_with(1e18);
    let expected = "the logit of token 0 at position 3 is NaN, so no token can be drawn";
    assert!(of_activations.contains(expected), "{of_activations}");
}

#[test]
fn a_text_depends_on_seed_and_place_alone() {
    let model = model(Style::Gpt2);
    let prompt = sequences(1, 11, model.vocabulary).remove(0);
    // More than the context holds.
    let added = 150;
    let (oracle, _) = generate(&model, &plain_layout(1, 1, 1, 1), &prompt, added);
    assert_eq!(oracle.len(), added);
    let (again, _) = generate(&model, &plain_layout(1, 1, 1, 1), &prompt, added);
    assert_eq!(oracle, again);
    for pp in [2, 4] {
        assert_eq!(oracle, generate(&model, &plain_layout(1, 1, pp, 1), &prompt, added).0, "pp {pp}");
    }
    // Of two replicas the first draws; both gather.
    assert_eq!(oracle[..20], generate(&model, &sharded(2, 2), &prompt, 20).0, "gathered parameters");
    // Other sums, so not the same bits; over these few tokens no draw is so close that it matters.
    let (tensor_parallel, _) = generate(&model, &plain_layout(1, 2, 2, 1), &prompt, 20);
    assert_eq!(oracle[..20], tensor_parallel);
    // Three ranks do not divide the rows of a pass, which a program that generates does not shard.
    let prompt = sequences(1, 11, model.vocabulary).remove(0);
    let wide = ModelSpec { num_kv_heads: 12, ..model };
    let of = |layout: Parallelism| generate(&wide, &layout, &prompt, 20).0;
    assert_eq!(of(plain_layout(1, 3, 1, 1)), of(shared(plain_layout(1, 3, 1, 1))));
}
