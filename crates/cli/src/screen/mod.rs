//! Output for people: streams, files, numbers, and the line of a running run.

pub mod aligned;
pub mod bar;
pub mod journal;
pub mod narrow;
pub mod output;
pub mod patience;
pub mod progress;
pub mod terminal;
