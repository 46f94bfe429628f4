//! Rules of `[model]`.

use crate::tests::check::expect;

#[test]
fn the_model_fits_together() {
    expect(&[
        (&["model.head_dim=1024"], "model.head_dim = 1024 is wider than an attention head can be; use at most 512"),
        (
            &["model.hidden=5120"],
            "model.head_dim = 1280 is wider than an attention head can be; \
             use model.num_heads = 10 (512 each) or more, or a smaller model.head_dim",
        ),
        (
            &["model.vocabulary=255"],
            "model.vocabulary = 255 is less than the 1024 tokens of data.tokenizer; use at least 1024",
        ),
        (
            &["model.context=262145", "model.attention_dropout=0.1"],
            "train.sequence_length = 262145 is more than model.attention_dropout can distinguish; use at most 262144, or \
             model.attention_dropout = 0",
        ),
        (
            &["model.num_heads=65537", "model.head_dim=1", "model.attention_dropout=0.1", "parallelism.tp=1"],
            "model.num_heads = 65537 is more than model.attention_dropout can distinguish; use at most 65536, or \
             model.attention_dropout = 0",
        ),
        (
            &["model.position_offset=8388609"],
            "model.position_offset = 8388609 is more rows than a position table can skip; use at most 8388608",
        ),
        (
            &["model.attention_dropout=-0.1"],
            "model.attention_dropout = -0.1 must be a probability below 1; use 0 or more and less than 1",
        ),
        (
            &["model.position=rotary", "model.head_dim=31"],
            "model.rotary_fraction = 1.0 must rotate whole pairs of dims; got 31 of model.head_dim = 31; use 0.9677419 (30 dims)",
        ),
        (
            &["model.context=16777216", "train.sequence_length=16777216"],
            "model.context = 16777216 is more positions than attention can distinguish; use at most 8388608",
        ),
    ]);
}

#[test]
fn windows_and_scaled_rotations_have_a_meaning() {
    expect(&[
        (
            &["model.layer_pattern=[\"local\"]"],
            "model.layer_pattern has no effect without model.window; give both, or leave it out",
        ),
        (&["model.window=0"], "model.window = 0 must let a token see itself; use from 1 to 8388608, or leave it out"),
        (
            &["model.window=4", "model.layer_pattern=[\"global\"]"],
            "model.layer_pattern has no local layer for model.window; add one, or leave out model.window",
        ),
        (
            &["model.window=4", "model.local_rotary_base=100"],
            "model.local_rotary_base has no effect without model.position = \"rotary\"; leave it out",
        ),
        (
            &["model.position=rotary", "model.rotary_scaling=yarn", "model.rotary_magnitude=0"],
            "model.rotary_magnitude = 0.0 must keep queries and keys; leave it out, or use more than 0",
        ),
    ]);
}
