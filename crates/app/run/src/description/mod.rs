//! A run in words.

pub mod product_line;
pub mod run_lines;
