//! Tests of the public interface of `data`.

mod baselines;
mod batches;
mod blanks;
mod chat;
mod folder;
mod labels;
mod marks;
mod megatron;
mod records;
mod sources;
mod strangers;
mod token_files;
mod tokenize;
mod tokenizers;
