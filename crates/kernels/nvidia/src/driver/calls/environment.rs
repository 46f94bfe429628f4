//! Variables of the environment that the driver and NCCL read when they start.

/// The most hardware queues of a GPU.
const MOST_QUEUES: &str = "32";
/// How many the driver gives a process, 8 where it is not set. Streams that share one wait for each other.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// Lets NCCL order its kernels of several communicators as they were launched, from 2.26 on.
const LAUNCH_ORDER: &str = "NCCL_LAUNCH_ORDER_IMPLICIT";

/// Asks for a hardware queue for each stream, and for launches in order, where the environment says nothing. Does
/// nothing in a process of several threads, which may read the environment meanwhile: call it first.
pub fn ask_for_hardware_queues() {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if !matches!(threads, Ok(1)) {
        return;
    }
    for (name, value) in [(QUEUES, MOST_QUEUES), (LAUNCH_ORDER, "1")] {
        if std::env::var_os(name).is_none() {
            // SAFETY: this is the only thread of the process, so nobody reads the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// The warning for an environment that gives streams fewer hardware queues than there may be.
pub fn shared_hardware_queues() -> Option<String> {
    let asked = std::env::var(QUEUES).ok();
    if asked.as_deref() == Some(MOST_QUEUES) {
        return None;
    }
    let found = asked.map_or_else(|| format!("{QUEUES} is not set"), |asked| format!("{QUEUES} = {asked}"));
    Some(format!("{found}: streams of a GPU share hardware queues and wait for each other; set it to {MOST_QUEUES}"))
}
