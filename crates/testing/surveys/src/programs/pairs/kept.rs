//! Results of pairs, kept in a file as they come.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use surveys::pairs::{Compared, Kind, LossScale, Share, Shares};
use sync::lock;

/// The file and its lines: the number of a pair, and a mark if the scale of its loss was lowered; then kind, share and
/// tensor of each distance.
pub struct Kept {
    file: Mutex<File>,
    rows: Mutex<BTreeMap<u32, Result<Compared, String>>>,
}

impl Kept {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// A file that cannot be read or written, in words.
    pub fn open(path: &Path) -> Result<Kept, String> {
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let known = if path.exists() { std::fs::read_to_string(path).map_err(said)? } else { String::new() };
        let rows = known.lines().filter_map(read).map(|(number, compared)| (number, Ok(compared))).collect();
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(said)?;
        Ok(Kept { file: Mutex::new(file), rows: Mutex::new(rows) })
    }

    /// Whether this pair has run.
    pub fn holds(&self, number: u32) -> bool {
        lock(&self.rows).contains_key(&number)
    }

    /// Keeps the shares of a pair. A pair that did not run is not written, so that the next run tries it again.
    pub fn keep(&self, number: u32, compared: Result<Compared, String>) {
        if let Ok(Compared { shares, scale }) = &compared {
            let mark = match scale {
                LossScale::Drawn => "",
                LossScale::Lowered => MARK,
            };
            let fields = shares.iter().map(|share| format!("\t{}\t{:e}\t{}", share.kind, share.share, share.of));
            let line = format!("{number}{mark}{}\tend\n", fields.collect::<String>());
            if let Err(error) = lock(&self.file).write_all(line.as_bytes()) {
                eprintln!("the results: {error}");
            }
        }
        lock(&self.rows).insert(number, compared);
    }

    /// The shares of all pairs, and why others did not run.
    pub fn all(&self) -> (Shares, Vec<String>) {
        let (mut shares, mut failed) = (Shares::default(), Vec::new());
        for (number, row) in lock(&self.rows).iter() {
            match row {
                Ok(row) => shares.add(*number, row),
                Err(error) => failed.push(error.clone()),
            }
        }
        (shares, failed)
    }
}

/// The mark of a pair whose scale was lowered.
const MARK: &str = "*";

/// A line of the file; `None` for one that was cut off.
fn read(line: &str) -> Option<(u32, Compared)> {
    let (number, rest) = line.strip_suffix("\tend")?.split_once('\t')?;
    let fields: Vec<&str> = rest.split('\t').collect();
    let shares = fields.chunks(3).map(|share| match share {
        [kind, share, of] => Some(Share { kind: Kind::named(kind), share: share.parse().ok()?, of: (*of).into() }),
        _ => None,
    });
    let (number, scale) = match number.strip_suffix(MARK) {
        Some(number) => (number, LossScale::Lowered),
        None => (number, LossScale::Drawn),
    };
    Some((number.parse().ok()?, Compared { shares: shares.collect::<Option<_>>()?, scale }))
}
