//! Collectives, channels and failures over every transport: ranks that are threads of one process, and ranks in several
//! processes that talk over TCP or share memory.

#![allow(clippy::unwrap_used)]

/// Each function as a test over every wire.
macro_rules! over_every_wire {
    ($($test:ident),* $(,)?) => {
        mod over_threads {
            $(#[test] fn $test() { super::$test(crate::worlds::Wire::Threads) })*
        }
        #[cfg(target_os = "linux")]
        mod over_tcp {
            $(#[test] fn $test() { super::$test(crate::worlds::Wire::Tcp) })*
        }
        #[cfg(target_os = "linux")]
        mod over_shared_memory {
            $(#[test] fn $test() { super::$test(crate::worlds::Wire::SharedMemory) })*
        }
    };
}

mod channels;
mod collectives;
mod failures;
mod hosts;
