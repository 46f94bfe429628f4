//! `cargo run --release -p surveys -- NAME [options]`: one program for all surveys.

#![forbid(unsafe_code)]

mod programs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use programs::{
    accuracy, equality, expert_pairs, gpu_conformance, interleavings, kernel_archive, kernel_times, long_sequences,
    matrix, pairs, reliability, scale,
};

/// Runs many layouts and counts what they keep.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    survey: Survey,
}

#[derive(Subcommand)]
enum Survey {
    Accuracy(accuracy::Arguments),
    Equality(equality::Arguments),
    ExpertPairs(expert_pairs::Arguments),
    Matrix(matrix::Arguments),
    LongSequences(long_sequences::Arguments),
    Interleavings(interleavings::Arguments),
    Pairs(pairs::Arguments),
    Reliability(reliability::Arguments),
    Scale(scale::Arguments),
    KernelTimes(kernel_times::Arguments),
    KernelArchive(kernel_archive::Arguments),
    GpuConformance(gpu_conformance::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().survey {
        Survey::Accuracy(arguments) => accuracy::run(&arguments),
        Survey::Equality(arguments) => equality::run(&arguments),
        Survey::ExpertPairs(arguments) => expert_pairs::run(&arguments),
        Survey::Matrix(arguments) => matrix::run(&arguments),
        Survey::LongSequences(arguments) => long_sequences::run(&arguments),
        Survey::Interleavings(arguments) => interleavings::run(&arguments),
        Survey::Pairs(arguments) => pairs::run(&arguments),
        Survey::Reliability(arguments) => reliability::run(&arguments),
        Survey::Scale(arguments) => scale::run(&arguments),
        Survey::KernelTimes(arguments) => kernel_times::run(&arguments),
        Survey::KernelArchive(arguments) => kernel_archive::run(&arguments),
        Survey::GpuConformance(arguments) => return gpu_conformance::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
