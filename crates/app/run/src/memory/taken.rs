//! Memory that a run has used: the planned arenas, and the rest of the process.

use config::figures::bytes;
use mesh::{Axis, Rank};
use train::Setup;

/// The arenas of `ranks` together, as planned, with their memory of the host.
pub fn arenas_bytes(setup: &Setup, ranks: &[Rank]) -> u64 {
    let of_rank = |rank: &Rank| setup.programs.arena_size(setup.mesh.coord(*rank).along(Axis::Pp)).end_bytes() as u64;
    ranks.iter().map(of_rank).sum()
}

/// The most memory that the process has held so far, as far as the system tells (Linux does).
pub fn resident_peak_bytes() -> Option<u64> {
    peak_of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmHWM:     73192 kB`.
fn peak_of_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// `memory  102 MB at most: 85.9 MB of arenas, 16.1 MB in addition`; empty where the system does not report it. `of`
/// begins the line where there are other processes: `process 0: `.
pub fn describe(of: &str, arenas_bytes: u64, resident_bytes: Option<u64>) -> String {
    let Some(resident_bytes) = resident_bytes else { return String::new() };
    let other_bytes = resident_bytes.saturating_sub(arenas_bytes);
    let [resident, arenas, other] = [resident_bytes, arenas_bytes, other_bytes].map(bytes);
    format!("memory  {of}{resident} at most: {arenas} of arenas, {other} in addition\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        assert_eq!(peak_of_status("Name:\tpleach\nVmPeak:\t  140416 kB\nVmHWM:\t   97640 kB\n"), Some(97640 * 1024));
        assert_eq!(peak_of_status("Name:\tpleach\n"), None);
    }

    #[test]
    fn a_run_tells_what_it_held_and_what_of_it_was_planned() {
        let line = describe("", 85_900_000, Some(102_000_000));
        assert_eq!(line, "memory  102 MB at most: 85.9 MB of arenas, 16.1 MB in addition\n");
        let first = describe("process 0: ", 85_900_000, Some(102_000_000));
        assert_eq!(first, line.replace("memory  ", "memory  process 0: "));
        assert_eq!(describe("", 85_900_000, None), "");
    }
}
