//! What a run takes of the machine's memory: the planned arenas, and what the process has held.

use mesh::Axis;
use train::Setup;

/// The arenas of all ranks together, as planned.
pub fn arenas_bytes(setup: &Setup) -> usize {
    setup.mesh.ranks().map(|rank| setup.programs.arena_bytes(setup.mesh.coord(rank).along(Axis::Pp))).sum()
}

/// The most memory that the process has held so far, as far as the system tells (Linux does).
pub fn resident_peak_bytes() -> Option<usize> {
    peak_of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmHWM:     73192 kB`.
fn peak_of_status(status: &str) -> Option<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// `memory  8 arenas, together 40.9 MiB, 73.1 MiB resident at most`.
pub fn describe(setup: &Setup, resident_bytes: Option<usize>) -> String {
    let ranks = setup.mesh.world_size();
    let arenas = match ranks {
        1 => "one arena,".into(),
        _ => format!("{ranks} arenas, together"),
    };
    let resident = resident_bytes.map_or(String::new(), |bytes| format!(", {} MiB resident at most", mebibytes(bytes)));
    format!("memory  {arenas} {} MiB{resident}", mebibytes(arenas_bytes(setup)))
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
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
    fn a_run_tells_its_arenas_and_what_is_resident() {
        let config = spec::RunConfig::quick_start();
        let setup = Setup::new(config.model, config.parallelism, config.train).expect("legal");
        let text = describe(&setup, Some(3 << 19));
        assert!(
            text.starts_with("memory  8 arenas, together ") && text.ends_with(" MiB, 1.5 MiB resident at most"),
            "{text}"
        );
    }
}
