//! Rules of loss scaling.

use crate::tests::check::{expect, said};

#[test]
fn loss_scales_are_powers_of_two_in_their_range() {
    let fp16 = |more: &str| said(&["train.precision=fp16", more]);
    assert_eq!(
        fp16("train.initial_loss_scale=60000"),
        "train.initial_loss_scale = 60000.0 must be a power of two; use 32768.0 or 65536.0"
    );
    assert_eq!(
        fp16("train.initial_loss_scale=1e12"),
        "train.initial_loss_scale = 1000000000000.0 is out of the range of loss scales; use 1 to 4294967296"
    );
    assert_eq!(
        fp16("train.min_loss_scale=131072"),
        "train.min_loss_scale = 131072.0 is more than train.initial_loss_scale = 65536.0; use at most 65536.0"
    );
    assert_eq!(fp16("train.loss_scale_window=0"), "train.loss_scale_window = 0 must be positive; use at least 1");
    assert_eq!(
        fp16("train.loss_scale_hysteresis=0"),
        "train.loss_scale_hysteresis = 0 must be positive; use at least 1"
    );
}

#[test]
fn loss_scaling_belongs_to_fp16_and_orders_of_products_to_the_numbers_that_they_multiply() {
    expect(&[
        (
            &["train.min_loss_scale=2"],
            "train.min_loss_scale has no effect where train.precision = \"fp32\"; write train.precision = \"fp16\", or leave train.min_loss_scale out",
        ),
        (
            &["train.precision=bf16", "train.loss_scale_window=10"],
            "train.loss_scale_window has no effect where train.precision = \"bf16\"; write train.precision = \"fp16\", or leave train.loss_scale_window out",
        ),
        (
            &["train.precision=fp16", "train.products=pairs"],
            "train.products = \"pairs\" must have train.precision = \"fp32\" or \"bf16\"; got \"fp16\"; \
             use train.products = \"chained\", \"blocks16\" or \"blocks8\"",
        ),
        (
            &["train.precision=fp16", "train.products=pairs", "run.device=cuda"],
            "train.products = \"pairs\" must have train.precision = \"fp32\" or \"bf16\"; got \"fp16\"; \
             use train.products = \"chained\", \"blocks16\", \"blocks8\" or \"device\"",
        ),
        (
            &["train.products=blocks16", "run.device=cuda"],
            "train.products = \"blocks16\" must have train.precision = \"bf16\" or \"fp16\"; got \"fp32\"; \
             use train.products = \"chained\"",
        ),
        (
            &["train.products=blocks16"],
            "train.products = \"blocks16\" must have train.precision = \"bf16\" or \"fp16\"; got \"fp32\"; \
             use train.products = \"chained\" or \"pairs\"",
        ),
        (
            &["train.precision=fp32", "train.products=blocks8"],
            "train.products = \"blocks8\" must have train.precision = \"bf16\" or \"fp16\"; got \"fp32\"; \
             use train.products = \"chained\" or \"pairs\"",
        ),
        (
            &["train.products=device"],
            "train.products = \"device\" must have train.precision = \"bf16\" or \"fp16\"; got \"fp32\"; \
             use train.products = \"chained\" or \"pairs\"",
        ),
        (&["train.precision=fp8"], "train.precision = \"fp8\" is not one of \"fp32\", \"bf16\" and \"fp16\""),
    ]);
}
