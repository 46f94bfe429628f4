//! Programs from schedule to memory plan.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test may stop at once")]

mod activations;
mod axes;
mod golden;
mod masters;
mod memory;
mod mutations;
mod offload;
mod oracle;
mod properties;
mod queues;
mod random;
mod rates;
mod reference;
mod schedules;
mod setup;
mod sharding;
mod stages;
mod sums;
mod waits;
mod world;
