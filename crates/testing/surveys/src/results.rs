//! Verdicts by the name of their case, kept in a file as they come.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use prove::Verdict;
use sync::lock;

/// The part of a verdict that a table shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Whether it has the bits of the run whose sums have the same order.
    pub same_bits: bool,
    /// Whether it has the bits of one rank.
    pub oracle_bits: bool,
    /// Largest relative difference of a loss.
    pub loss: f64,
    /// Largest distance of a gradient.
    pub gradient: f64,
    pub gradient_of: String,
    /// Largest distance of a weight.
    pub weight: f64,
    pub weight_of: String,
    /// Fall of the loss.
    pub fall: f64,
    /// The largest share that a distance is of its bound.
    pub nearest: f64,
    /// Broken parts of the promise.
    pub faults: String,
}

impl Row {
    /// The measurements of `verdict`; `faults` are the broken parts of its promise.
    pub fn of(verdict: Verdict, faults: &[String]) -> Row {
        let distance = verdict.distance;
        Row {
            same_bits: verdict.same_bits,
            oracle_bits: distance.same_bits,
            loss: distance.loss,
            gradient: distance.gradient.0,
            gradient_of: distance.gradient.1,
            weight: distance.weight.0,
            weight_of: distance.weight.1,
            fall: verdict.fall,
            nearest: verdict.nearest,
            faults: faults.join("; "),
        }
    }
}

/// The result of a point, or the reason why it did not run.
pub type Finding = Result<Row, String>;

/// The file and what it holds.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: Mutex<File>,
    rows: Mutex<BTreeMap<String, Row>>,
}

impl Results {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// A file that cannot be read or written, in words.
    pub fn open(path: &Path) -> Result<Results, String> {
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let known = if path.exists() { std::fs::read_to_string(path).map_err(said)? } else { String::new() };
        let rows = known.lines().filter_map(read).collect();
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(said)?;
        Ok(Results { path: path.into(), file: Mutex::new(file), rows: Mutex::new(rows) })
    }

    /// Whether this case has run.
    pub fn holds(&self, name: &str) -> bool {
        lock(&self.rows).contains_key(name)
    }

    /// How many cases have run.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        lock(&self.rows).len()
    }

    /// Says what was found, and keeps it. A case that did not run is not kept, so that the next run tries it again.
    pub fn tell(&self, name: &str, finding: Finding) {
        match finding {
            Ok(row) => {
                eprintln!("{name}: {}", if row.faults.is_empty() { "as promised" } else { &row.faults });
                self.keep(name, row);
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }

    fn keep(&self, name: &str, row: Row) {
        let line = line(name, &row);
        let mut file = lock(&self.file);
        if let Err(error) = file.write_all(line.as_bytes()) {
            eprintln!("{}: {error}", self.path.display());
        }
        lock(&self.rows).insert(name.into(), row);
    }

    /// Everything.
    pub fn all(&self) -> BTreeMap<String, Row> {
        lock(&self.rows).clone()
    }
}

fn line(name: &str, row: &Row) -> String {
    let Row { same_bits, oracle_bits, loss, gradient, gradient_of, weight, weight_of, fall, nearest, faults } = row;
    format!(
        "{name}\t{same_bits}\t{oracle_bits}\t{loss:e}\t{gradient:e}\t{gradient_of}\t{weight:e}\t{weight_of}\t{fall}\t{nearest:e}\t{faults}\n"
    )
}

/// A line of the file; `None` for one that was cut off.
fn read(line: &str) -> Option<(String, Row)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, same_bits, oracle_bits, loss, gradient, gradient_of, weight, weight_of, fall, nearest, faults] =
        fields[..]
    else {
        return None;
    };
    let row = Row {
        same_bits: same_bits.parse().ok()?,
        oracle_bits: oracle_bits.parse().ok()?,
        loss: loss.parse().ok()?,
        gradient: gradient.parse().ok()?,
        gradient_of: gradient_of.into(),
        weight: weight.parse().ok()?,
        weight_of: weight_of.into(),
        fall: fall.parse().ok()?,
        nearest: nearest.parse().ok()?,
        faults: faults.into(),
    };
    Some((name.into(), row))
}
