//! PTX by hand: every family of instructions against Rust, and every check on a kernel that breaks its rule.

mod checks;
mod clusters;
mod control;
mod conversions;
mod directions;
mod faults;
mod integers;
mod machine;
mod matrices;
mod numbers;
mod phases;
mod pipeline;
mod shared_code;
mod streams;
mod warpgroups;
mod warps;
