//! Programs from schedule to memory plan.

mod golden;
mod memory;
mod mutations;
mod oracle;
mod properties;
mod random;
mod reference;
mod schedules;
mod setup;
mod stages;
