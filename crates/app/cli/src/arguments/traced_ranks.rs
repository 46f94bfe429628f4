//! The ranks of a simulated step that are traced.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Which ranks of a simulated step are traced. Those of one stage do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracedRanks {
    /// Every one.
    All,
    /// The ranks of the first replica.
    Replica,
    /// The first of each stage.
    Pipeline,
    /// Those from the first to the last of each of these.
    Numbers(Vec<RangeInclusive<usize>>),
}

impl FromStr for TracedRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<TracedRanks, String> {
        let range = |part: &str| -> Option<RangeInclusive<usize>> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        match text {
            "all" => Ok(TracedRanks::All),
            "replica" => Ok(TracedRanks::Replica),
            "pipeline" => Ok(TracedRanks::Pipeline),
            _ => match text.split(',').map(range).collect() {
                Some(numbers) => Ok(TracedRanks::Numbers(numbers)),
                None => Err("must be all, replica, pipeline or numbers like 0,8,16-23".into()),
            },
        }
    }
}
