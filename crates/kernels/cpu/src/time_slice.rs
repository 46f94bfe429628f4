//! The time slice that the scheduler grants a thread on a core that it shares.
//!
//! Ranks wait for each other thousands of times a second. After each wait a rank that shares its core with another
//! program waits for the end of that program's slice, some milliseconds, although the rank needs microseconds. A thread
//! with a shorter slice has the same share of the core and runs sooner after it wakes.

/// The shortest slice that Linux grants.
#[cfg(target_os = "linux")]
const SHORTEST_NS: u64 = 100_000;

/// Gives the calling thread, and the threads that it starts, the shortest slice. Without effect where the system
/// refuses, before Linux 6.12, and under real-time and deadline policies.
#[cfg(target_os = "linux")]
pub fn shorten() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel reads `size` bytes of the structure, which is that large.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Policy, nice value and slice of the calling thread.
#[cfg(target_os = "linux")]
fn attributes() -> Option<libc::sched_attr> {
    const SIZE_BYTES: u32 = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size: SIZE_BYTES,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `SIZE_BYTES` bytes, which the structure has.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE_BYTES, 0) };
    (status == 0).then_some(attributes)
}

/// Other systems choose slices themselves.
#[cfg(not(target_os = "linux"))]
pub fn shorten() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_slice_alone_changes_and_threads_inherit_it() {
        let read = || attributes().expect("a thread may read its own attributes");
        let inherited = std::thread::spawn(move || {
            let before = read();
            shorten();
            let after = read();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            let child = std::thread::spawn(read).join().expect("no panic");
            (before.sched_runtime, after.sched_runtime, child.sched_runtime)
        });
        let (before, after, child) = inherited.join().expect("no panic");
        // A kernel before 6.12 reports no slice for this policy.
        assert!(after == SHORTEST_NS || (before, after) == (0, 0), "{before} ns became {after} ns");
        assert_eq!(child, after);
    }
}
