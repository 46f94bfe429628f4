//! Text in, tokens of every sequence of every step out.
//!
//! A [`Dataset`] is what a run reads: sources of text or of tokens, a [`Tokenizer`], and two parts of which one is held
//! out. A [`Corpus`] is text as documents of tokens, in memory or in a mapped file; [`Batches`] answers which tokens
//! sequence `n` of step `s` has. The answer is a function of (seed, step, sequence) alone: it knows neither ranks nor
//! microbatches, so no layout changes the order of the data, and a run that continues at step `s` needs no other state
//! than `s`.
//!
//! A source may be a text file, JSON lines, a folder of them ([`read`]), a token file ([`TokenFile`]), or a pair of
//! Megatron-LM ([`megatron`]). Everything in them is verified when they are opened.

#![deny(unsafe_code)]

mod baselines;
mod batches;
mod blanks;
mod cache;
mod chat;
mod corpus;
mod csv_rows;
mod dataset;
mod document;
mod draws;
mod embedded;
mod error;
mod fields;
mod file_names;
mod file_problem;
mod instructions;
mod json_lines;
mod json_objects;
mod learned_tokens;
mod long_runs;
pub mod megatron;
mod memory_map;
mod mixture;
mod odd_files;
mod packs;
mod read;
mod records;
mod sources;
mod special_tokens;
mod split;
mod text_parts;
mod text_source;
mod text_stream;
mod token_file;
mod tokenize;
mod tokenizer;
mod tokenizer_file;
mod tokens;
mod tools_column;

pub use baselines::{Baselines, OrderTwo, gzip_bits_per_byte};
pub use batches::{Batches, Order, Targets, Window};
pub use blanks::{Blanks, Kind, Slot};
pub use chat::{Chat, Conversation};
pub use corpus::Corpus;
pub use dataset::{Dataset, common_tokenizer, vocabulary_of};
pub use document::{Document, Rendered};
pub use embedded::{DOCUMENT_MARK, embedded};
pub use error::DataError;
pub use file_names::{is_text_of_folder, selects};
pub use file_problem::FileProblem;
pub use instructions::{Instruction, Instructions};
pub use mixture::{Mixture, MixturePart, Packing, Shares};
pub use packs::LeftOut;
pub use read::{Content, read};
pub use records::{Record, Records};
pub use sources::{Sources, files_of};
pub use special_tokens::marks_of;
pub use split::{Split, split, split_tokens};
pub use text_stream::TextStream;
pub use token_file::{TokenFile, TokenFileWriter};
pub use tokenize::{Earlier, Key, Listener, NoListener, Progress, Written, tokenize, train};
pub use tokenizer::{BYTES_FILE, TOKENIZER_FILE, Tokenizer};
pub use tokens::{TokenType, Tokens};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as data;
#[cfg(test)]
mod tests;
