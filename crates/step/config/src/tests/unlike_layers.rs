//! Keys of models whose layers differ, and of norms elsewhere than before blocks.

use config::{Blocks, LocalAttention, Pairing, Position, Problem, QkNorm, Reach, RotaryScaling, RunConfig};

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
