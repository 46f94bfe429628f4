//! The layout of a run, and other layouts for it.

pub mod changes;
pub mod other_model;
pub mod replan;
pub mod unwatched_hosts;
pub mod without_host;
