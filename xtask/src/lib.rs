//! Checks of the repository itself, and generators of files that are committed.
//!
//! `cargo run -p xtask -- tidy` prints what is not tidy; the same check is a test of this crate.

#![forbid(unsafe_code)]

pub mod advisories;
pub mod clocks;
pub mod columns;
pub mod corpus;
pub mod dependencies;
pub mod docstrings;
pub mod documented;
pub mod file_access;
pub mod finding;
pub mod glossary;
pub mod layers;
pub mod loops;
pub mod modules;
pub mod page_links;
pub mod pages;
pub mod places;
pub mod quick;
pub mod repository;
pub mod rust_code;
pub mod signposts;
pub mod test_counts;
pub mod test_programs;
pub mod tidy;
pub mod trusted_values;
pub mod variables;
pub mod whole_tests;
pub mod words;

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as xtask;
#[cfg(test)]
mod tests;
