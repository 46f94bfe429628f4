//! Runs of programs: what ranks gather, reduce, report and repeat.

mod all_ranks;
mod anomalies;
mod diverging;
mod evaluation;
mod first_step;
mod gathered;
mod inference;
mod other_axes;
mod recheck;
mod reduced_axes;
mod run_products;
mod stragglers;
