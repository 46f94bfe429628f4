//! Runs every cell of the support matrix and prints the page. Results are kept in a file, line by line, and cells that
//! it holds are not run again: a run that was stopped resumes where it was. Delete the file after a change of numerics.
//! Ends with a failure if a cell breaks the promise of its class.

mod page;

use clap::Args;
use surveys::drawers::{matrix, matrix_of_shared_sequences};
use surveys::page::{PageOptions, PageSurvey};
use surveys::survey::Memory;

/// Run every cell of the support matrix and print its page
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    page: PageOptions,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let (product, shared) = (matrix(), matrix_of_shared_sequences());
    let survey = PageSurvey {
        name: "matrix",
        lists: vec![product.clone(), shared.clone()],
        memory: Memory::Measured,
        others: &|_| (),
        page: &|rows| page::page((&product, &shared), rows),
    };
    survey.run(&arguments.page)
}
