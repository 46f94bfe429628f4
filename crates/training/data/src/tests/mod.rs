//! Tests of the public interface of `data`.

mod baselines;
mod batches;
mod blanks;
mod chat;
mod folder;
mod marks;
mod megatron;
mod records;
mod sources;
mod token_files;
mod tokenize;
mod tokenizers;
