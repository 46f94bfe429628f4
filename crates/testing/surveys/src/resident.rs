//! Memory of this process that is in use, as Linux counts it.

use std::fs;

/// Bytes that are resident now; nothing where the system does not say.
pub fn resident_bytes() -> Option<usize> {
    status("VmRSS:")
}

/// The most bytes that were resident since [`restart_peak`], or since the process began.
pub fn peak_bytes() -> Option<usize> {
    status("VmHWM:")
}

/// Lets [`peak_bytes`] begin again with what is resident now, where the system does that.
pub fn restart_peak() {
    // A system that does not leaves the peak of what came before, which is at least as high.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn status(key: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kibibytes)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_is_resident_and_stays_in_the_peak() {
        const BYTES: usize = 64 << 20;
        // Other tests of this process come and go, so half of it is asked for.
        let before = resident_bytes().expect("Linux says it");
        let memory = std::hint::black_box(vec![1_u8; BYTES]);
        assert!(resident_bytes().expect("Linux says it") >= before + BYTES / 2);
        drop(memory);
        assert!(peak_bytes().expect("Linux says it") >= before + BYTES / 2);
    }
}
