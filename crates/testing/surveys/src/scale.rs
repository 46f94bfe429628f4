//! The parts of a run of thousands of ranks that need no arena: its programs, the meeting of its processes, and the
//! records of its checkpoint, with their seconds and bytes. The model is Llama 3.1 405B.

mod large_run;
mod meeting;
mod programs;
mod records;

pub use large_run::{LargeRun, RANKS_OF_A_REPLICA, Sharded};
pub use meeting::{JoiningProcesses, meeting};
pub use programs::programs;
pub use records::records;

use crate::resident;

/// Figures of one part: names with values, in the order in which they are printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<(&'static str, f64)>);

impl Figures {
    /// Adds the `value` of `name`.
    pub fn put(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value));
    }

    /// A line `NAME=VALUE ...`.
    pub fn line(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// Names and values of a line of [`Figures::line`]; none for another line.
pub fn parsed(line: &str) -> Option<Vec<(String, f64)>> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    };
    let pairs: Option<Vec<(String, f64)>> = line.split_whitespace().map(pair).collect();
    pairs.filter(|pairs| !pairs.is_empty())
}

/// Largest resident size of this process so far in bytes; 0 where the system does not tell.
fn peak_bytes() -> f64 {
    resident::peak_bytes().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_figures_is_read_back() {
        let mut figures = Figures::default();
        figures.put("seconds", 1.5);
        figures.put("bytes", 4096.0);
        assert_eq!(figures.line(), "seconds=1.5 bytes=4096");
        assert_eq!(parsed(&figures.line()), Some(vec![("seconds".into(), 1.5), ("bytes".into(), 4096.0)]));
        assert_eq!(parsed("no figures"), None);
        assert_eq!(parsed(""), None);
    }
}
