//! Runs every layout whose ranks share sequences against one rank. Ends with a failure at the first that is not as near
//! as it must be; `--from` continues after those that passed.

use clap::Args;
use surveys::drawers::long_sequences;
use surveys::long_sequences::faults;

/// Run every layout whose ranks share long sequences against one rank
#[derive(Args)]
pub struct Arguments {
    /// Skip the first K of them
    #[arg(long, value_name = "K", default_value_t = 0)]
    from: usize,
}

/// Runs them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let points = long_sequences();
    for (number, point) in points.iter().enumerate().skip(arguments.from) {
        let faults = faults(point).map_err(|error| format!("layout {number}: {point}: {error}"))?;
        if !faults.is_empty() {
            return Err(format!("layout {number}: {point}: {}", faults.join("; ")));
        }
        eprintln!("{number}: {point}: within the bounds");
    }
    println!(
        "{} layouts whose ranks share sequences: within the bounds of other sums, planned bytes are used bytes",
        points.len()
    );
    Ok(())
}
