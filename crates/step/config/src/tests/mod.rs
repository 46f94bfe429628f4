//! Tests of the public interface of `config`.

mod balance;
mod check;
mod data_section;
mod learning_rates;
mod run_file;
mod run_file_page;
mod unlike_layers;
