//! Text in, tokens of every sequence of every step out.
//!
//! A [`Corpus`] is text as documents; [`Batches`] answers which tokens sequence `n` of step `s` has. The answer is a function of
//! (seed, step, sequence) alone: it knows neither ranks nor microbatches, so no layout changes the order of the data, and
//! a run that continues at step `s` needs no other state than `s`.

#![forbid(unsafe_code)]

mod batches;
mod corpus;
mod embedded;
mod error;
mod read;
mod split;

pub use batches::{Batches, Order};
pub use corpus::{Corpus, Document};
pub use embedded::{DOCUMENT_MARK, embedded};
pub use error::DataError;
pub use read::read;
pub use split::{Split, split};
