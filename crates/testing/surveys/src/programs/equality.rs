//! Runs every case of the promise of equality and prints the table of distances. Results are kept in a file, line by
//! line, and cases that it holds are not run again: a run that was stopped resumes where it was. Delete the file after
//! a change of numerics. Ends with a failure if a case breaks the promise.

mod factors;
mod summary;
mod table;

use std::path::PathBuf;

use clap::Args;
use config::Products;
use surveys::drawers::{equality, equality_exact, equality_in_pairs, families};
use surveys::golden;
use surveys::page::{PageOptions, PageSurvey, write};
use surveys::results::{Results, tell};
use surveys::survey::{Memory, microbatch_sizes};

/// Run every case of the promise of equality and print its page
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    page: PageOptions,
    /// Write golden losses to this file and run nothing else
    #[arg(long, value_name = "FILE")]
    golden: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(path) = &arguments.golden {
        return golden::losses().and_then(|losses| write(path, &losses));
    }
    let survey = PageSurvey {
        name: "equality",
        lists: vec![equality(), equality_exact(), equality_in_pairs()],
        memory: Memory::Plain,
        others: &compare_microbatch_sizes,
        page: &table::table,
    };
    survey.run(&arguments.page)
}

fn compare_microbatch_sizes(results: &Results) {
    for products in [Products::Chained, Products::Pairs] {
        for family in families().into_iter().filter(|family| family.microbatch_size == 1) {
            let name = table::microbatch_name(&family, products);
            if results.get(&name).is_none() {
                for (_, finding) in microbatch_sizes(&[family], products) {
                    tell(results, &name, finding);
                }
            }
        }
    }
}
