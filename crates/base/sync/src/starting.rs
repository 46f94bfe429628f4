//! Threads that are started by name, or refused with a remedy: a process has limits of threads and of address space.

use std::error::Error;
use std::fmt;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// A thread that the system does not start.
#[derive(Debug)]
pub struct NoThread {
    name: String,
    cause: std::io::Error,
}

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoThread { name, cause } = self;
        write!(
            f,
            "the thread \"{name}\" cannot be started: {cause}; allow more threads (ulimit -u, or pids.max of the control \
             group) and more address space (ulimit -v unlimited), or use fewer ranks in a process"
        )
    }
}

impl Error for NoThread {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// Starts a thread that does `work`.
///
/// # Errors
/// A system that starts no more threads.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    Builder::new().name(name.into()).spawn(work).map_err(|cause| NoThread { name: name.into(), cause })
}

/// Starts a thread that does `work` and ends before `scope`.
///
/// # Errors
/// A system that starts no more threads.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, NoThread> {
    let started = Builder::new().name(name.into()).spawn_scoped(scope, work);
    started.map_err(|cause| NoThread { name: name.into(), cause })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_a_refusal_its_remedy() {
        let name = || std::thread::current().name().map(str::to_string);
        let found = start("watch", name).map(JoinHandle::join);
        assert!(matches!(found, Ok(Ok(Some(found))) if found == "watch"));
        let scoped = std::thread::scope(|scope| start_scoped(scope, "relay", name).map(ScopedJoinHandle::join));
        assert!(matches!(scoped, Ok(Ok(Some(found))) if found == "relay"));
        let refused = NoThread { name: "watch".into(), cause: std::io::Error::from_raw_os_error(11) }.to_string();
        assert!(refused.starts_with("the thread \"watch\" cannot be started: Resource"), "{refused}");
        assert!(refused.ends_with("(ulimit -v unlimited), or use fewer ranks in a process"), "{refused}");
    }
}
