//! Runs cells of the support matrix without overlap, with it, and on streams that are delayed at random. Ends with a
//! failure at the first cell that learns other bits; `--from` continues after the cells that passed.

use clap::Args;
use surveys::interleavings::{cells, compare};
use surveys::sample::size;

/// Run cells of the support matrix with streams in any order
#[derive(Args)]
pub struct Arguments {
    /// Run N cells drawn by the seed
    #[arg(long, value_name = "N", default_value = "1000", value_parser = size())]
    cells: usize,
    /// Skip the first K of them
    #[arg(long, value_name = "K", default_value_t = 0)]
    from: usize,
    /// Another seed draws other cells
    #[arg(long, value_name = "SEED", default_value_t = 2)]
    seed: u32,
}

/// Runs them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let cells = cells(arguments.cells, arguments.seed);
    for (number, cell) in cells.iter().enumerate().skip(arguments.from) {
        compare(cell, number as u64).map_err(|error| format!("cell {number}: {error}"))?;
        eprintln!("{number}: {cell}: the same bits");
    }
    println!("{} cells, each in two orders of its streams: the same bits as without overlap", cells.len());
    Ok(())
}
