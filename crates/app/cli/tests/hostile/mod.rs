//! Hostile input, as a table: what a command is given, its verdict, and the most that it may take. No command hangs,
//! swells, destroys or panics, whatever the files are that it is given.
//!
//! `cargo test -p cli --test suite hostile:: -- --nocapture` prints every case with its exit code, seconds, peak memory
//! and last line.

mod case;
pub mod checkpoints;
mod clusters;
mod environments;
mod fixtures;
mod hugging_face;
mod kinds_of_files;
mod outputs;
mod process;
mod reports;
mod run_files;
mod run_folders;
mod sequences;
mod signals;
mod steering;
mod texts;
mod tokenizers;
mod verdict;
mod weights;
mod work;
