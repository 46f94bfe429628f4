//! Output for people: streams, tables, and lines that change.

pub mod aligned;
pub mod bar;
pub mod narrow;
pub mod output;
pub mod patience;
pub mod terminal;
