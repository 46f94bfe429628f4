//! Keys of models whose layers differ, and of norms elsewhere than before blocks.

use config::{
    Blocks, ExpertGroups, ExpertsSpec, Init, LocalAttention, Pairing, Position, Problem, QkNorm, Reach, RotaryScaling,
    RouterScores, RouterWeights, Routing, RunConfig, SharedExpert, SharedGate, Unit, active_parameters, params,
    unique_parameters,
};

fn load(text: &str, sets: &[&str]) -> Result<RunConfig, Vec<Problem>> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    RunConfig::load("run.toml", text, &sets)
}

#[test]
fn unlike_layers_are_read_and_survive_writing() {
    let sets = [
        "model.norm=rms",
        "model.position=rotary",
        "model.window=16",
        "model.layer_pattern=[\"local\", \"local\", \"global\", \"local\", \"local\", \"global\"]",
        "model.local_rotary_base=100",
        "model.blocks=sandwich",
        "model.qk_norm=whole",
        "model.rotary_scaling=yarn",
        "model.rotary_scaling_factor=4",
    ];
    let config = load("", &sets).expect("legal");
    let pattern = vec![Reach::Local, Reach::Local, Reach::Global];
    let local = LocalAttention { window: 16, pattern, rotary_base: Some(100.0) };
    assert_eq!(config.model.local_attention, Some(local));
    assert_eq!((config.model.blocks, config.model.qk_norm), (Blocks::Sandwich, QkNorm::Whole));
    let magnitude = RotaryScaling::fitted_magnitude(4.0);
    let (low_turns, high_turns, original_context) = (1.0, 32.0, 8192);
    let yarn = RotaryScaling::Yarn { factor: 4.0, low_turns, high_turns, original_context, magnitude };
    let pairing = Pairing::Half;
    assert_eq!(config.model.position, Position::Rotary { base: 1e4, rotary_dims: 32, pairing, scaling: yarn });
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
}

/// A run of dense layers and layers with experts.
const EXPERTS: [&str; 8] = [
    "model.experts=8",
    "model.experts_per_token=3",
    "model.expert_hidden=96",
    "model.first_expert_layer=1",
    "model.router_groups=4",
    "model.router_groups_kept=2",
    "model.router_scale=2.5",
    "model.biases=false",
];

#[test]
fn experts_are_read_and_survive_writing() {
    let shared = ["model.shared_expert_hidden=64", "model.shared_expert_gate=true", "model.router_scores=sigmoid"];
    let config = load("", &[&EXPERTS[..], &shared].concat()).expect("legal");
    let groups = Some(ExpertGroups { number: 4, kept: 2 });
    let (scores, weights) = (RouterScores::Sigmoid, RouterWeights::Normalised);
    let experts = ExpertsSpec {
        balance: config::Balance::NONE,
        number: 8,
        per_token: 3,
        hidden: 96,
        shared: Some(SharedExpert { hidden: 64, gate: SharedGate::Learned }),
        first_layer: 1,
        layer_interval: 1,
        routing: Routing { scores, weights, scale: 2.5, groups },
    };
    assert_eq!(config.model.experts, Some(experts));
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
}

#[test]
fn each_matrix_of_an_expert_begins_with_its_own_spread_and_is_counted_as_far_as_tokens_use_it() {
    let sets = [&EXPERTS[..], &["model.xavier_gain=0.5", "model.activation=swiglu", "model.num_layers=3"]].concat();
    let model = load("", &sets).expect("legal").model;
    let list = params(&model, Unit::Experts(1));
    let shapes: Vec<_> = list.iter().map(|param| (param.name.as_str(), param.shape.clone())).collect();
    let expected =
        [("layers.1.experts.gate_up.weight", vec![8, 2, 96, 128]), ("layers.1.experts.down.weight", vec![8, 128, 96])];
    assert_eq!(shapes, expected);
    let std = (0.5 * (2.0f64 / (96.0 + 128.0)).sqrt()) as f32;
    assert!(list.iter().all(|param| param.init == Init::Normal { std }), "{list:?}");
    assert!(params(&model, Unit::Experts(0)).is_empty());
    // Two of three layers have experts, of which a token uses 3 of 8.
    let of_experts = 2 * 8 * 3 * 96 * 128;
    assert_eq!(unique_parameters(&model) - active_parameters(&model), of_experts / 8 * 5);
}

#[test]
fn routers_gates_and_experts_decay_as_other_matrices_do() {
    let sets = [&EXPERTS[..], &["model.shared_expert_hidden=64", "model.shared_expert_gate=true"]].concat();
    let model = load("", &sets).expect("legal").model;
    let list = [Unit::Layer(1), Unit::Experts(1)].into_iter().flat_map(|unit| params(&model, unit));
    let (decaying, others): (Vec<_>, Vec<_>) = list.partition(|param| param.decay);
    let decaying: Vec<&str> = decaying.iter().map(|param| param.name.as_str()).collect();
    for name in ["router", "shared_gate", "shared.down", "experts.up", "experts.down", "attention.query"] {
        assert!(decaying.contains(&format!("layers.1.{name}.weight").as_str()), "{name} of {decaying:?}");
    }
    assert!(others.iter().all(|param| param.shape.len() == 1), "{others:?}");
}

/// Biases of routers and experts are vectors, expert after expert, which begin at 0.
#[test]
fn biases_of_feed_forward_blocks_are_those_of_routers_and_experts() {
    for (activation, first, width) in [("relu", "up", 96), ("swiglu_clamped", "gate_up", 2 * 96)] {
        let activation = format!("model.activation={activation}");
        let model = load("", &[&EXPERTS[..], &["model.biases=ffn", &activation]].concat()).expect("legal").model;
        let of = |unit| params(&model, unit).into_iter().filter(|param| param.name.ends_with("bias"));
        let experts: Vec<_> = of(Unit::Experts(1)).map(|param| (param.name, param.shape, param.init)).collect();
        let name = |part: &str| format!("layers.1.experts.{part}.bias");
        let expected = [(name(first), vec![8 * width], Init::Zeros), (name("down"), vec![8 * 128], Init::Zeros)];
        assert_eq!(experts, expected);
        let router: Vec<_> = of(Unit::Layer(1)).filter(|param| param.name.contains("router")).collect();
        assert_eq!(router.len(), 1);
        assert_eq!((router[0].name.as_str(), &router[0].shape), ("layers.1.router.bias", &vec![8]));
        assert!(!router[0].decay);
    }
}

#[test]
fn experts_that_do_not_fit_are_refused_by_name() {
    let mut said = vec![];
    let of_lora = r#"model.lora={ rank = 2, targets = ["query", "up"] }"#;
    for change in [
        &["model.ffn_hidden_of_layers=[1,2,3,4,5,6]"][..],
        &["model.experts=6", "model.router_groups=2", "parallelism.tp=4"],
        &[of_lora, "parallelism.zero=0"],
    ] {
        let problems = load("", &[&EXPERTS[..], change].concat()).expect_err("refused");
        let first = problems.first().expect("a problem");
        said.push(first.clone().at(None).to_string());
    }
    let expected = [
        "model.ffn_hidden_of_layers has no effect on layers with experts; leave it out, or leave \
         model.experts out",
        "parallelism.tp = 4 must divide model.experts = 6; use 1 or 2",
        "model.lora has the target \"up\", a matrix of experts where model.experts is given; use targets \
         among \"query\", \"key\", \"value\" and \"output\"",
    ];
    assert_eq!(said, expected);
}
