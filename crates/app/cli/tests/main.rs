//! The command, as its users meet it. All tests are one program, so that those that wait for processes, deadlines and
//! disks wait while others compute.

mod chat;
mod command;
mod compatibility;
mod data_command;
mod examples;
mod explain;
mod gpus;
mod harness;
mod hostile;
mod hugging_face;
mod inference;
mod lessons;
mod pictures;
mod plan;
mod presets;
mod processes;
mod published_sizes;
mod python;
mod readmes;
mod report;
mod resume;
mod simulate;
mod sum_tree;
mod terminal;
mod text_of_models;
mod tools;
mod two_runs;
mod verdicts;
