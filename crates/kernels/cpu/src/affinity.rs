//! Cores that threads stay on, where the system tells which there are and lets threads choose.

/// The cores that the calling thread may run on, in ascending order; none where the system does not tell.
#[cfg(target_os = "linux")]
pub fn allowed_cores() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return vec![] };
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// Keeps the calling thread on `core`. Where the system refuses, it runs where it did, and what it computes is the
/// same.
#[cfg(target_os = "linux")]
pub fn stay_on(core: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut alone = CpuSet::new();
    alone.set(core);
    let _ = sched_setaffinity(None, &alone);
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
pub fn allowed_cores() -> Vec<usize> {
    vec![]
}

/// Other systems place threads themselves.
#[cfg(not(target_os = "linux"))]
pub fn stay_on(_: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let cores = allowed_cores();
        let last = *cores.last().expect("this thread runs on a core");
        let left = std::thread::spawn(move || {
            stay_on(last);
            allowed_cores()
        });
        assert_eq!(left.join().expect("no panic"), [last]);
        assert_eq!(allowed_cores(), cores, "other threads are where they were");
    }
}
