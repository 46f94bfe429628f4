//! Operations on bf16 or fp16 values: what single precision gives, rounded once.
#![allow(clippy::expect_used)]

mod attention;
mod conversions;
mod elementwise;
mod fused;
mod machine;
mod products;
