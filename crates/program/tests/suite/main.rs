//! Programs from schedule to memory plan.

mod memory;
mod setup;
