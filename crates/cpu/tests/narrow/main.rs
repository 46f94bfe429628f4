//! Operations on narrow numbers: what single precision gives, rounded once.
#![allow(clippy::expect_used)]

mod attention;
mod conversions;
mod elementwise;
mod machine;
mod products;
