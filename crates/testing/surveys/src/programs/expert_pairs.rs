//! Draws pairs of layouts of small random models with experts, runs them and compares each with its promise. Each
//! result is kept in a file, and pairs that it holds are not run again: a run that was stopped continues. Ends with a
//! failure where a promise is broken.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Args;
use surveys::expert_pairs::{Compared, Count, compare, draw, page};
use surveys::kept::Kept;
use surveys::page::{workers, write};
use sync::{into_inner, lock};

/// Run random pairs of layouts of models with experts and print their page
#[derive(Args)]
pub struct Arguments {
    /// Pairs that are drawn
    #[arg(long, value_name = "N", default_value_t = 1200, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Another seed draws other pairs
    #[arg(long, value_name = "SEED", default_value_t = 32)]
    seed: u32,
    /// Where results are kept while the pairs run [default: a file in target]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print the pair of this number and how it compares, and nothing else
    #[arg(long, value_name = "NUMBER")]
    show: Option<u32>,
    /// Run N pairs of the seed, keep and write nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Where the page goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Runs them.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { pairs, seed, results, show, sample, write: to } = arguments;
    if let Some(number) = show {
        let pair = draw(*seed, *number);
        println!("{pair}\n{:#?}", compare(&pair)?);
        return Ok(());
    }
    if let Some(count) = sample {
        let kept = Kept::default();
        let (_, faults) = run_all(&kept, *seed, *count);
        let Count { pairs, promise_bits, within, chosen_otherwise, .. } = Count::of(kept.all().values());
        println!(
            "confirmed: {pairs} pairs keep their promise, {promise_bits} of bits and {within} of bounds; \
             {chosen_otherwise} chose otherwise; seed {seed}"
        );
        return if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) };
    }
    let default = || PathBuf::from(format!("target/expert-pairs-{seed}.txt"));
    let kept = Kept::open(&results.clone().unwrap_or_else(default), &format!("pairs with experts of seed {seed}"))?;
    let (text, faults) = run_all(&kept, *seed, *pairs);
    println!("{text}");
    if let Some(path) = to {
        write(path, &text)?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Runs the first `pairs` of `seed` that are not kept. Returns the page, and broken promises with the pairs that did
/// not run; these are not kept, so that the next run tries them again.
fn run_all(kept: &Kept<u32, Compared>, seed: u32, pairs: u32) -> (String, Vec<String>) {
    let (next, failed) = (AtomicU32::new(0), Mutex::new(vec![]));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= pairs {
                break;
            }
            if kept.get(&number).is_some() {
                continue;
            }
            match compare(&draw(seed, number)) {
                Ok(compared) => kept.keep(number, compared),
                Err(error) => lock(&failed).push(error),
            }
        }
    };
    std::thread::scope(|scope| (0..workers()).for_each(|_| drop(scope.spawn(work))));
    let (text, broken) = page(&kept.all(), seed);
    (text, [into_inner(failed), broken].concat())
}
