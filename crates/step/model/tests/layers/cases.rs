//! Small models of every style.

use config::{
    Activation, Balance, Biases, Blocks, ExpertGroups, ExpertsSpec, LoadSet, LocalAttention, ModelSpec, Norm, NormKind,
    Pairing, Position, QkNorm, Reach, RotaryScaling, RouterBias, RouterScores, RouterWeights, Routing, SharedExpert,
    SharedGate, Statistics, TopQuery,
};
use model::MicrobatchShape;

/// Two sequences of six tokens.
pub const SHAPE: MicrobatchShape = MicrobatchShape::whole(2, 6);

/// Layer norm, learned positions, GELU, biases, tied table. Heads are wider together than the residual stream, and the
/// vocabulary is odd.
pub fn gpt2() -> ModelSpec {
    ModelSpec {
        num_layers: 2,
        hidden: 12,
        num_heads: 4,
        num_kv_heads: 4,
        head_dim: 4,
        ffn_hidden: 20,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary: 13,
        context: 8,
        norm: Norm { kind: NormKind::Layer, epsilon: 1e-5 },
        position: Position::Learned { offset: 0 },
        local_attention: None,
        activation: Activation::GeluTanh,
        blocks: Blocks::Sequential,
        biases: Biases::All,
        embedding_scale: None,
        query_scalar: None,
        attention_soft_cap: None,
        logit_divisor: None,
        logit_soft_cap: None,
        embedding_norm: false,
        tied_embeddings: true,
        padding_token: None,
        top_query: TopQuery::Off,
        qk_norm: config::QkNorm::Off,
        dropout: 0.0,
        attention_dropout: 0.0,
        init_std: 0.4,
        output_init_std: None,
        xavier_gain: None,
        lora: None,
        z_loss: None,
    }
}

/// RMS norm, rotary positions, gated SiLU, grouped queries, no biases, a head of its own.
pub fn llama() -> ModelSpec {
    ModelSpec {
        num_kv_heads: 2,
        norm: Norm { kind: NormKind::Rms, epsilon: 1e-5 },
        position: Position::Rotary { base: 100.0, rotary_dims: 4, pairing: Pairing::Half, scaling: RotaryScaling::Off },
        activation: Activation::SwiGlu,
        biases: Biases::Off,
        tied_embeddings: false,
        ..gpt2()
    }
}

/// A norm after the embedding, ALiBi.
fn bloom() -> ModelSpec {
    ModelSpec { position: Position::Alibi, embedding_norm: true, ..gpt2() }
}

/// Blocks side by side, a part of each head rotated, a head of its own.
pub fn neox() -> ModelSpec {
    let position =
        Position::Rotary { base: 100.0, rotary_dims: 2, pairing: Pairing::Half, scaling: RotaryScaling::Off };
    ModelSpec { position, blocks: Blocks::Parallel, tied_embeddings: false, ..gpt2() }
}

/// Of the two pairs of a head one turns slowly and one is between slow and fast.
fn scaled() -> ModelSpec {
    let scaling = RotaryScaling::Llama3 { factor: 8.0, low_turns: 1.0, high_turns: 4.0, original_context: 16 };
    let position = Position::Rotary { base: 100.0, rotary_dims: 4, pairing: Pairing::Half, scaling };
    ModelSpec { position, ..llama() }
}

/// Norms that the stream passes through, gated GELU.
fn glm() -> ModelSpec {
    let position =
        Position::Rotary { base: 100.0, rotary_dims: 4, pairing: Pairing::Half, scaling: RotaryScaling::Off };
    ModelSpec { position, blocks: Blocks::DeepNorm { alpha: 2.0 }, activation: Activation::GeGlu, ..gpt2() }
}

/// A layer after the final norm whose queries come from a table, quick GELU.
fn codegeex() -> ModelSpec {
    ModelSpec { top_query: TopQuery::On, activation: Activation::GeluSigmoid, ..gpt2() }
}

/// Windows of two tokens, with another base than the layers that see everything.
fn windows(pattern: &[Reach], rotary_base: Option<f32>) -> ModelSpec {
    ModelSpec { local_attention: Some(LocalAttention { window: 2, pattern: pattern.to_vec(), rotary_base }), ..llama() }
}

/// Norms of the blocks' outputs alone, and of queries and keys over all heads.
pub fn olmo() -> ModelSpec {
    ModelSpec { blocks: Blocks::PostNorm, qk_norm: QkNorm::Whole, ..llama() }
}

/// Norms before and after blocks, of heads, and with one more than the weight; a scaled embedding and scores of a size
/// of their own.
pub fn gemma() -> ModelSpec {
    ModelSpec {
        norm: Norm { kind: NormKind::RmsPlusOne, epsilon: 1e-5 },
        activation: Activation::GeGluTanh,
        blocks: Blocks::Sandwich,
        qk_norm: QkNorm::Heads,
        embedding_scale: Some(3.5),
        query_scalar: Some(7.0),
        tied_embeddings: true,
        ..windows(&[Reach::Local, Reach::Global], Some(10.0))
    }
}

/// Eight experts, three for each token, weighed as `routing` says.
pub fn experts(routing: Routing, shared: Option<SharedExpert>) -> ExpertsSpec {
    let balance = Balance { statistics: Statistics::Off, ..Balance::NONE };
    ExpertsSpec { number: 8, per_token: 3, hidden: 6, shared, first_layer: 0, layer_interval: 1, routing, balance }
}

/// Softmax scores whose weights add up to 1.
pub const NORMALISED: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

/// Logits that are divided, before their soft cap if they have one.
fn divided() -> [(&'static str, ModelSpec); 2] {
    let capped = ModelSpec { logit_soft_cap: Some(1.5), top_query: TopQuery::On, ..bloom() };
    [
        ("divided logits", ModelSpec { logit_divisor: Some(6.0), ..llama() }),
        ("divided logits with a soft cap, a top query", ModelSpec { logit_divisor: Some(0.7), ..capped }),
    ]
}

fn with_experts() -> Vec<(&'static str, ModelSpec)> {
    let model = |spec: ExpertsSpec| ModelSpec { experts: Some(spec), ..llama() };
    let shared = |gate| Some(SharedExpert { hidden: 8, gate });
    let scores = Routing { weights: RouterWeights::Scores, ..NORMALISED };
    let of_groups =
        |scores, kept| Routing { scores, scale: 2.5, groups: Some(ExpertGroups { number: 4, kept }), ..NORMALISED };
    let dropped = |model| ModelSpec { dropout: 0.2, attention_dropout: 0.3, ..model };
    vec![
        ("experts", model(experts(NORMALISED, None))),
        ("experts with dropout", dropped(model(experts(NORMALISED, None)))),
        ("weights that are scores, a gated shared expert", model(experts(scores, shared(SharedGate::Learned)))),
        (
            "groups of experts, sigmoid scores, a shared expert, a dense first layer",
            model(ExpertsSpec {
                first_layer: 1,
                ..experts(of_groups(RouterScores::Sigmoid, 2), shared(SharedGate::Open))
            }),
        ),
        (
            "groups of experts, softmax scores, every second layer, no gates in activations, norms around blocks",
            ModelSpec {
                activation: Activation::GeluTanh,
                blocks: Blocks::Sandwich,
                ..model(ExpertsSpec {
                    layer_interval: 2,
                    ..experts(Routing { weights: RouterWeights::Scores, ..of_groups(RouterScores::Softmax, 3) }, None)
                })
            },
        ),
        (
            "experts in parallel blocks, one of them for each token",
            ModelSpec {
                blocks: Blocks::Parallel,
                ..model(ExpertsSpec { per_token: 1, ..experts(scores, shared(SharedGate::Learned)) })
            },
        ),
        (
            "all experts for each token, DeepNorm, dropout",
            dropped(ModelSpec {
                blocks: Blocks::DeepNorm { alpha: 2.0 },
                ..model(ExpertsSpec { per_token: 8, ..experts(NORMALISED, None) })
            }),
        ),
        (
            "biases of routers and experts, clamped gates",
            ModelSpec {
                activation: Activation::SwiGluClamped,
                biases: Biases::All,
                ..model(experts(NORMALISED, None))
            },
        ),
        (
            "biases of experts, weights that are sigmoid scores, no gates in activations, dropout",
            dropped(ModelSpec {
                activation: Activation::GeluErf,
                biases: Biases::FeedForward,
                ..model(ExpertsSpec {
                    first_layer: 1,
                    ..experts(Routing { scores: RouterScores::Sigmoid, ..scores }, None)
                })
            }),
        ),
        (
            "experts, norms after blocks, a top query",
            ModelSpec { top_query: TopQuery::On, blocks: Blocks::PostNorm, ..model(experts(NORMALISED, None)) },
        ),
    ]
}

fn with_balance() -> Vec<(&'static str, ModelSpec)> {
    let model = |spec: ExpertsSpec| ModelSpec { experts: Some(spec), ..llama() };
    let scores = Routing { weights: RouterWeights::Scores, ..NORMALISED };
    let groups = Some(ExpertGroups { number: 4, kept: 2 });
    let of_groups = Routing { scores: RouterScores::Sigmoid, scale: 2.5, groups, ..NORMALISED };
    let shared = SharedExpert { hidden: 8, gate: SharedGate::Learned };
    vec![
        (
            "a balance loss of sequences and a z-loss of routers, statistics",
            model(ExpertsSpec {
                balance: Balance { loss: Some(0.3), z_loss: Some(0.1), ..Balance::NONE },
                ..experts(scores, Some(shared))
            }),
        ),
        (
            "a balance loss of the step before, sigmoid scores of groups, corrected choices, every second layer",
            ModelSpec {
                dropout: 0.2,
                attention_dropout: 0.3,
                ..model(ExpertsSpec {
                    layer_interval: 2,
                    balance: Balance {
                        loss: Some(0.3),
                        over: LoadSet::Step,
                        bias: Some(RouterBias { rate: 1e-3 }),
                        ..Balance::NONE
                    },
                    ..experts(of_groups, None)
                })
            },
        ),
        (
            "a balance loss of sequences, sigmoid scores, parallel blocks",
            ModelSpec {
                blocks: Blocks::Parallel,
                ..model(ExpertsSpec {
                    balance: Balance { loss: Some(0.3), ..Balance::NONE },
                    ..experts(Routing { scores: RouterScores::Sigmoid, ..NORMALISED }, None)
                })
            },
        ),
        (
            // Learned positions tell equal tokens apart. Between equal ones rounding would choose which is dropped.
            "a capacity of experts, a z-loss of routers, learned positions",
            ModelSpec {
                position: Position::Learned { offset: 0 },
                ..model(ExpertsSpec {
                    balance: Balance { capacity: Some(0.75), z_loss: Some(0.1), ..Balance::NONE },
                    ..experts(scores, None)
                })
            },
        ),
    ]
}

fn yarn() -> Position {
    let scaling =
        RotaryScaling::Yarn { factor: 4.0, low_turns: 0.1, high_turns: 1.0, original_context: 16, magnitude: 1.2 };
    Position::Rotary { base: 100.0, rotary_dims: 4, pairing: Pairing::Half, scaling }
}

/// All cases, by name.
pub fn all() -> Vec<(&'static str, ModelSpec)> {
    let partly_rotated =
        Position::Rotary { base: 100.0, rotary_dims: 2, pairing: Pairing::Interleaved, scaling: RotaryScaling::Off };
    let dropped = |model| ModelSpec { dropout: 0.2, attention_dropout: 0.3, ..model };
    let mut all = vec![
        ("gpt2", gpt2()),
        ("gpt2 with dropout", dropped(gpt2())),
        ("gpt2 untied, erf", ModelSpec { tied_embeddings: false, activation: Activation::GeluErf, ..gpt2() }),
        ("llama", llama()),
        ("llama with dropout", dropped(llama())),
        ("llama, norms of queries and keys", ModelSpec { qk_norm: config::QkNorm::Heads, ..llama() }),
        (
            "tied, norms of queries and keys, dropout",
            dropped(ModelSpec { qk_norm: config::QkNorm::Heads, tied_embeddings: true, ..llama() }),
        ),
        (
            "partly rotated, biases, gated erf",
            ModelSpec { position: partly_rotated, activation: Activation::GeGlu, biases: Biases::All, ..llama() },
        ),
        (
            "offset of positions, ReLU",
            ModelSpec { position: Position::Learned { offset: 2 }, activation: Activation::Relu, ..gpt2() },
        ),
        ("bloom", bloom()),
        ("bloom with dropout", dropped(bloom())),
        ("norm of learned positions", dropped(ModelSpec { embedding_norm: true, tied_embeddings: false, ..gpt2() })),
        ("neox", neox()),
        ("neox with dropout", dropped(neox())),
        ("codegeex", codegeex()),
        ("codegeex with dropout", dropped(codegeex())),
        (
            "a top query of rotated, grouped, normed heads, untied",
            dropped(ModelSpec { qk_norm: config::QkNorm::Heads, top_query: TopQuery::On, ..llama() }),
        ),
        ("glm", glm()),
        ("glm with dropout", dropped(glm())),
        (
            "quick GELU, biases of queries, keys and values",
            ModelSpec { activation: Activation::GeluSigmoid, biases: Biases::QueryKeyValue, ..llama() },
        ),
        ("biases of attention", ModelSpec { biases: Biases::Attention, ..llama() }),
        ("biases of the feed-forward block, scaled rotation", ModelSpec { biases: Biases::FeedForward, ..scaled() }),
        ("layers of different widths", ModelSpec { ffn_hidden_of_layers: Some(vec![8, 20]), ..gpt2() }),
        (
            "gated layers of different widths, a top query",
            dropped(ModelSpec { ffn_hidden_of_layers: Some(vec![24, 4]), top_query: TopQuery::On, ..llama() }),
        ),
        ("windows in all layers", windows(&[Reach::Local], None)),
        ("windows in one layer, another rotation", dropped(windows(&[Reach::Local, Reach::Global], Some(10.0)))),
        ("norms after blocks and over all heads", olmo()),
        ("norms after blocks, biases, dropout", dropped(ModelSpec { biases: Biases::All, ..olmo() })),
        ("norms before and after blocks", ModelSpec { blocks: Blocks::Sandwich, ..llama() }),
        (
            "layer norms before and after blocks, dropout, a top query",
            dropped(ModelSpec { blocks: Blocks::Sandwich, top_query: TopQuery::On, ..gpt2() }),
        ),
        ("scaled rotation of pairs by number", ModelSpec { position: yarn(), ..llama() }),
        ("Gemma", gemma()),
        ("soft caps", dropped(ModelSpec { attention_soft_cap: Some(0.8), logit_soft_cap: Some(1.5), ..gemma() })),
        (
            "soft caps and biases of scores, a top query",
            ModelSpec { attention_soft_cap: Some(0.8), logit_soft_cap: Some(1.5), top_query: TopQuery::On, ..bloom() },
        ),
        (
            "Gemma with learned positions, dropout, untied",
            dropped(ModelSpec {
                position: Position::Learned { offset: 0 },
                local_attention: None,
                tied_embeddings: false,
                ..gemma()
            }),
        ),
        ("no layers", ModelSpec { num_layers: 0, ..gpt2() }),
    ];
    all.extend(divided());
    all.extend(with_experts());
    all.extend(with_balance());
    all
}
