//! Draws pairs of layouts of small random models, runs them and compares their distances with the bounds. Each result
//! is kept in a file, and pairs that it holds are not run again: a run that was stopped continues. Pairs with gradients
//! of a kind that fewer than a thousand have are drawn on, since their quantile is not seen yet. Pairs whose fp16 runs
//! skip different steps are counted apart, and compared with a lower scale of the loss. Ends with a failure
//! where a distance is beyond its bound, or a bound beyond three times the 99.9 % quantile of its kind.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Args;
use surveys::kept::Kept;
use surveys::page::{workers, write};
use surveys::pairs::{Compared, LossScale, Pair, Shares, draw, has_gradients_of, measure, table};
use sync::{into_inner, lock};

/// Run random pairs of layouts and compare their distances with the bounds
#[derive(Args)]
pub struct Arguments {
    /// Pairs that are drawn
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Another seed draws other pairs
    #[arg(long, value_name = "SEED", default_value_t = 32)]
    seed: u32,
    /// Where results are kept while the pairs run
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print the pair of this number and its shares, and nothing else
    #[arg(long, value_name = "NUMBER")]
    show: Option<u32>,
    /// Where the table goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// At most this many times `--pairs` are drawn in search of rare kinds.
const MOST_DRAWN: u32 = 12;

/// Runs them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { pairs, seed, results, show, write: to } = arguments;
    if let Some(number) = show {
        let pair = draw(*seed, *number);
        let compared = measure(&pair)?;
        println!("{pair}");
        if compared.scale == LossScale::Lowered {
            println!("They skip different steps; compared with a lower scale of the loss:");
        }
        compared.shares.iter().for_each(|share| println!("{share}"));
        return Ok(());
    }
    let default = || PathBuf::from(format!("target/pairs-{seed}.txt"));
    let kept = Kept::open(&results.clone().unwrap_or_else(default), &format!("pairs of seed {seed}"))?;
    let mut failed = run_all(&kept, *seed, 0..*pairs, |_| true);
    // More pairs of kinds that were seldom drawn, a few at a time.
    let mut end = *pairs;
    let shares = loop {
        let mut shares = Shares::default();
        kept.all().iter().for_each(|(number, compared)| shares.add(*number, compared));
        let rare = shares.rare();
        if rare.is_empty() || !failed.is_empty() || end >= MOST_DRAWN.saturating_mul(*pairs) {
            break shares;
        }
        let next = end + (*pairs / 5).max(1);
        failed = run_all(&kept, *seed, end..next, |pair| rare.iter().any(|kind| has_gradients_of(pair, kind)));
        end = next;
    };
    let text = table(&shares);
    println!("{} pairs of seed {seed}\n\n{text}", shares.pairs());
    if !shares.lowered().is_empty() {
        println!("Skip different steps, and were compared with a lower scale of the loss: {:?}", shares.lowered());
    }
    if let Some(path) = to {
        write(path, &text)?;
    }
    let often: Vec<String> = shares.too_often_lowered().into_iter().collect();
    let findings = [failed, often, shares.exceeded(), shares.loose()].concat();
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}

/// Runs those of the pairs of `numbers` that are wanted and not kept. Returns why some did not run; they are not kept,
/// so that the next run tries them again.
fn run_all(
    kept: &Kept<u32, Compared>,
    seed: u32,
    numbers: Range<u32>,
    is_wanted: impl Fn(&Pair) -> bool + Sync,
) -> Vec<String> {
    let (next, failed) = (AtomicU32::new(numbers.start), Mutex::new(vec![]));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                break;
            }
            if kept.get(&number).is_some() {
                continue;
            }
            let pair = draw(seed, number);
            match is_wanted(&pair).then(|| measure(&pair)) {
                Some(Ok(compared)) => kept.keep(number, compared),
                Some(Err(error)) => lock(&failed).push(error),
                None => {}
            }
        }
    };
    std::thread::scope(|scope| (0..workers()).for_each(|_| drop(scope.spawn(work))));
    into_inner(failed)
}
