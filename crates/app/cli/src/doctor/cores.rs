//! The cores that this process may use, and who leaves no more.

use std::path::Path;

use serde::Serialize;

/// Processor cores, as the system counts them: hardware threads.
#[derive(Clone, Debug, Serialize)]
pub struct Cores {
    /// As many threads of this process can run at once.
    pub usable: usize,
    /// Cores on which the process may be scheduled: its affinity.
    pub allowed: Option<usize>,
    /// Cores that the machine has.
    pub built_in: Option<usize>,
    /// Name of the processor.
    pub processor: Option<String>,
}

impl Cores {
    /// As the files below `root` tell; how many are usable, which also depends on the control group's quota, the system
    /// is asked for.
    pub fn below(root: &Path) -> Cores {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let information = read("proc/cpuinfo");
        Cores {
            usable: std::thread::available_parallelism().map_or(1, usize::from),
            allowed: allowed(&read("proc/self/status")),
            built_in: Some(lines_of(&information, "processor").count()).filter(|count| *count > 0),
            processor: lines_of(&information, "model name").next().map(str::to_string),
        }
    }
}

/// The values of the lines `key : value`.
fn lines_of<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(move |(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// How many cores `Cpus_allowed_list: 0-3,8` names.
fn allowed(status: &str) -> Option<usize> {
    let list = lines_of(status, "Cpus_allowed_list").next()?;
    let counts = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last + 1).checked_sub(first)
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cores_are_counted() {
        assert_eq!(allowed("Cpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\n"), Some(7));
        assert_eq!(allowed("Cpus_allowed_list:\t5\n"), Some(1));
        assert_eq!(allowed("Cpus_allowed_list:\tall\n"), None);
        assert_eq!(allowed("Name:\tpleach\n"), None);
    }
}
