//! Surveys that write a page: they run all points and keep the results, or run a seeded sample of the points.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::Args;
use sync::{into_inner, lock};

use crate::results::{Results, Row, TITLE, tell};
use crate::sample::{Tally, draw, size};
use crate::space::Point;
use crate::survey::{Group, Known, Memory, groups, survey};

/// Puts `text` into the file at `path`.
///
/// # Errors
/// A file that cannot be written, by its name.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Threads that start runs: one per core.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Options of a survey that writes a page.
#[derive(Args, Clone, Debug)]
pub struct PageOptions {
    /// Where results are kept while the points run [default: a file in target]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Where the page goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Run N points drawn by the seed, keep and write nothing
    #[arg(long, value_name = "N", value_parser = size())]
    sample: Option<usize>,
    /// Another seed draws other points
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u32,
}

/// Makes a page of results by key: its text, and every broken promise.
pub type PageOfRows<'a> = &'a dyn Fn(&BTreeMap<String, Row>) -> (String, Vec<String>);

/// A survey that writes a page.
pub struct PageSurvey<'a> {
    /// Results are kept in the file `target/NAME.txt`.
    pub name: &'a str,
    /// All points. One list runs after the other: the tables of a survey that is stopped are complete or empty.
    pub lists: Vec<Vec<Point>>,
    pub memory: Memory,
    /// Adds what is compared besides the points.
    pub others: &'a dyn Fn(&Results),
    /// The page of these results, and every broken promise.
    pub page: PageOfRows<'a>,
}

impl PageSurvey<'_> {
    /// Runs all legal points that have no result yet and prints the page, or runs a sample.
    ///
    /// # Errors
    /// Broken promises, and files that cannot be read or written.
    pub fn run(&self, options: &PageOptions) -> Result<(), String> {
        let legal = |points: &Vec<Point>| points.iter().filter(|point| point.is_legal()).copied().collect();
        let lists: Vec<Vec<Point>> = self.lists.iter().map(legal).collect();
        if let Some(count) = options.sample {
            return self.run_sample(lists.concat(), count, options.seed);
        }
        let path = options.results.clone().unwrap_or_else(|| format!("target/{}.txt", self.name).into());
        let results = Results::open(&path, TITLE)?;
        for points in lists {
            let open: Vec<Point> =
                points.into_iter().filter(|point| results.get(&point.to_string()).is_none()).collect();
            eprintln!("{} points to run, {} known", open.len(), results.all().len());
            survey(&mixed(&groups(open)), self.memory, workers(), &Known::default(), &|point, finding| {
                tell(&results, &point.to_string(), finding);
            });
        }
        (self.others)(&results);
        let (text, faults) = (self.page)(&results.all());
        println!("{text}");
        if let Some(path) = &options.write {
            write(path, &text)?;
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }

    /// Runs `count` of the points and reports their verdicts.
    fn run_sample(&self, points: Vec<Point>, count: usize, seed: u32) -> Result<(), String> {
        let tally = Mutex::new(Tally::default());
        let drawn = groups(draw(points, count, seed, 0));
        survey(&drawn, self.memory, workers(), &Known::default(), &|point, finding| {
            eprintln!("{point}: {}", finding.as_ref().map_or_else(String::as_str, |row| row.faults.as_str()));
            lock(&tally).add(&point.to_string(), finding.as_ref().map_err(String::as_str));
        });
        let tally = into_inner(tally).result(count)?;
        println!("confirmed: {tally}; seed {seed}");
        Ok(())
    }
}

/// The same groups so mixed that the first few already show every value of each factor.
fn mixed(groups: &[Group]) -> Vec<Group> {
    const STRIDE: usize = 37;
    (0..STRIDE).flat_map(|start| groups.iter().skip(start).step_by(STRIDE)).cloned().collect()
}
