//! Rules of `[model]`.

use crate::expect;

#[test]
fn the_model_fits_together() {
    expect(&[
        (
            &["model.hidden=130"],
            "model.hidden = 130 is not a multiple of model.num_heads = 4; 128 or 132 would be, or give model.head_dim",
        ),
        (
            &["model.head_dim=1024"],
            "model.head_dim = 1024 is wider than a head of attention may be; at most 512 would do",
        ),
        (
            &["model.hidden=5120"],
            "model.head_dim = 1280 is wider than a head of attention may be; \
             model.num_heads = 10 (512 each) or more would do, or a smaller model.head_dim",
        ),
        (
            &["model.num_kv_heads=3", "parallelism.tp=1"],
            "model.num_kv_heads = 3 does not divide model.num_heads = 4; 1, 2 or 4 would",
        ),
        (
            &["model.vocabulary=255"],
            "model.vocabulary = 255 is less than the 1024 tokens of data.tokenizer; at least 1024 would do",
        ),
        (&["model.norm_epsilon=0"], "model.norm_epsilon = 0.0 does not keep a norm from dividing by 0; 1e-5 would"),
        (
            &["model.context=262145", "model.attention_dropout=0.1"],
            "train.sequence_length = 262145 is more than model.attention_dropout tells apart; at most 262144 would do, or \
             model.attention_dropout = 0",
        ),
        (
            &["model.num_heads=65537", "model.head_dim=1", "model.attention_dropout=0.1", "parallelism.tp=1"],
            "model.num_heads = 65537 is more than model.attention_dropout tells apart; at most 65536 would do, or \
             model.attention_dropout = 0",
        ),
        (
            &["model.init_std=0"],
            "model.init_std = 0.0 is no standard deviation that makes weights differ; 0.02 would do",
        ),
        (
            &["model.output_init_std=0"],
            "model.output_init_std = 0.0 is no standard deviation that makes weights differ; leave it out, or more than 0 would do",
        ),
        (
            &["model.position_offset=8388609"],
            "model.position_offset = 8388609 is more rows than any table leaves out; at most 8388608 would do",
        ),
        (
            &["model.blocks=deepnorm", "model.deepnorm_alpha=0"],
            "model.deepnorm_alpha = 0.0 does not keep the residual stream; more than 0 would do",
        ),
        (
            &["model.dropout=1", "model.attention_dropout=0"],
            "model.dropout = 1.0 is not a probability below 1; 0 or more and less than 1 would do",
        ),
        (
            &["model.attention_dropout=-0.1"],
            "model.attention_dropout = -0.1 is not a probability below 1; 0 or more and less than 1 would do",
        ),
        (
            &["model.position=rotary", "model.rotary_fraction=0.09375"],
            "model.rotary_fraction = 0.09375 rotates 3 of model.head_dim = 32 dims, which are not whole pairs; \
             0.0625 (2 dims) or 0.125 (4 dims) would do",
        ),
        (
            &["model.position=rotary", "model.head_dim=31"],
            "model.rotary_fraction = 1.0 rotates 31 of model.head_dim = 31 dims, which are not whole pairs; 0.9677419 (30 dims) would do",
        ),
        (
            &["model.context=16777216", "train.sequence_length=16777216"],
            "model.context = 16777216 is more positions than attention tells apart; at most 8388608 would do",
        ),
        (
            &["model.position=rotary", "model.rotary_base=1"],
            "model.rotary_base = 1.0 gives no falling frequencies; more than 1 would",
        ),
    ]);
}
