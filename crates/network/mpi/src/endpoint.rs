//! The thread that makes all calls of a library.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sync::{lock, wait_timeout};

use crate::abi::{Abi, ThreadLevel};
use crate::collective::{Collective, CommunicatorNumber};
use crate::functions::Code;
use crate::library::{Library, LibraryError};
use crate::mover::{Failure, Joint, Mover, Source, Target};

/// How often a wait looks whether the run has ended.
const GLANCE: Duration = Duration::from_millis(100);
/// The sleeps of the thread after its last message. Each ends with one call, so that what a peer waits for leaves the
/// library's buffers; then a call every [`IDLE`] costs no core.
const DRAINING: Duration = Duration::from_millis(1);
const DRAINING_CALLS: u32 = 16;
const IDLE: Duration = Duration::from_millis(50);
/// The stack of the thread: libraries are written for that of a main thread, which is 8 MiB by default; a thread of
/// Rust has 2 MiB.
const STACK_BYTES: usize = 8 << 20;

/// Why there is no endpoint, or why it does not end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EndpointError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A function that failed.
    #[error("{path}: {function}: {text}")]
    Call {
        /// The library.
        path: PathBuf,
        /// The function.
        function: &'static str,
        /// The library's own text.
        text: String,
    },
    /// Somebody else in this process has initialised the library.
    #[error("{path} is initialised already; unset what else uses MPI in this process, such as LD_PRELOAD")]
    Initialised {
        /// The library.
        path: PathBuf,
    },
    /// A library without threads.
    #[error("{path} gives the thread level {got}, and pleach has threads; use a library that gives funneled or more")]
    Level {
        /// The library.
        path: PathBuf,
        /// The level.
        got: ThreadLevel,
    },
    /// A call that does not return.
    #[error("{function} of {path} has not returned within {seconds:.1} s: {cause}")]
    Late {
        /// The library.
        path: PathBuf,
        /// The function.
        function: &'static str,
        /// The deadline.
        seconds: f64,
        /// A likely cause, with the remedy.
        cause: &'static str,
    },
    /// The run has ended meanwhile, for this reason.
    #[error("{0}")]
    Ended(String),
    /// The thread, which the system refuses or which panicked.
    #[error("the thread of MPI: {0}")]
    Thread(String),
}

const INIT: &str = "MPI_Init_thread";
const INIT_CAUSE: &str = "a process of the launcher does not call it, or the launcher belongs to another library; start \
                          every process by the library's own mpiexec, or raise run.rendezvous_seconds";
const GROUP: &str = "MPI_Comm_create_group";
const GROUP_CAUSE: &str = "a process of the group does not call it; see what it does, or raise run.timeout_seconds";
const FINALIZE: &str = "MPI_Finalize";
const FINALIZE_CAUSE: &str = "a process of the run does not call it; see what it does";

type OnThread = Box<dyn FnOnce(&mut Mover) + Send>;
type OnFailure = Box<dyn FnOnce(&Failure) + Send>;

enum Command {
    Send { peer: usize, tag: u32, source: Box<dyn Source> },
    Receive { peer: usize, tag: u32, target: Box<dyn Target> },
    Join(Joint),
    Free(Vec<CommunicatorNumber>),
    Call(OnThread),
    Finish(Sender<Result<(), Code>>),
}

#[derive(Default)]
struct Queue {
    commands: Vec<Command>,
    is_asleep: bool,
    /// No call may be made any more.
    has_stopped: bool,
    on_failure: Vec<OnFailure>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The first report of the thread, once the library is initialised.
struct Ready {
    abi: Abi,
    version: String,
    level: ThreadLevel,
    process: usize,
    processes: usize,
}

/// A library that is initialised, and the messages of this process over it.
///
/// Dropping it ends all messages without `MPI_Finalize`: for a run that failed, whose launcher ends the other
/// processes.
pub struct Endpoint {
    shared: Arc<Shared>,
    path: PathBuf,
    ready: Ready,
    numbers: AtomicUsize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({}, process {} of {})", self.path.display(), self.ready.process, self.ready.processes)
    }
}

impl Endpoint {
    /// Opens the library at `path` and initialises it with at least `level`, within `deadline`, unless `ended` returns
    /// the reason for which the run has ended meanwhile. All processes of the launcher have to call it.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open(
        path: PathBuf,
        level: ThreadLevel,
        deadline: Duration,
        ended: &dyn Fn() -> Option<String>,
    ) -> Result<Endpoint, EndpointError> {
        let shared = Arc::<Shared>::default();
        let (report, reports) = channel();
        let (its_path, its_shared) = (path.clone(), Arc::clone(&shared));
        let work = move || match initialise(&its_path, level) {
            Err(error) => drop(report.send(Err(error))),
            Ok((mover, ready)) => {
                drop(report.send(Ok(ready)));
                run(mover, &its_shared);
            }
        };
        let thread = std::thread::Builder::new().name("mpi".into()).stack_size(STACK_BYTES).spawn(work);
        let thread = thread.map_err(|error| EndpointError::Thread(error.to_string()))?;
        let late = |seconds| EndpointError::Late { path: path.clone(), function: INIT, seconds, cause: INIT_CAUSE };
        let ready = wait_for(&reports, deadline, ended, late)??;
        Ok(Endpoint { shared, path, ready, numbers: AtomicUsize::new(0), thread: Mutex::new(Some(thread)) })
    }

    /// The library.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The ABI of the library that is open.
    pub fn abi(&self) -> Abi {
        self.ready.abi
    }

    /// Its version, by itself.
    pub fn version(&self) -> &str {
        &self.ready.version
    }

    /// The thread level that it gives.
    pub fn level(&self) -> ThreadLevel {
        self.ready.level
    }

    /// The number of this process in MPI's world.
    pub fn process(&self) -> usize {
        self.ready.process
    }

    /// The number of processes of MPI's world.
    pub fn processes(&self) -> usize {
        self.ready.processes
    }

    /// Sends `source` to process `peer`; it is dropped when it is sent. `tag` is below [`crate::IDLE_TAG`].
    pub fn send(&self, peer: usize, tag: u32, source: Box<dyn Source>) {
        self.post(Command::Send { peer, tag, source });
    }

    /// Receives the next message of process `peer` with this `tag` into `target`.
    pub fn receive(&self, peer: usize, tag: u32, target: Box<dyn Target>) {
        self.post(Command::Receive { peer, tag, target });
    }

    /// Calls `listener` at the first failure, on the thread of MPI.
    pub fn on_failure(&self, listener: impl FnOnce(&Failure) + Send + 'static) {
        lock(&self.shared.queue).on_failure.push(Box::new(listener));
    }

    /// The next of a count that begins at 0: all processes that count the same things have the same numbers.
    pub fn next_number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a communicator of these processes of MPI's world, within `deadline`, unless `ended` returns a reason. They
    /// are numbered there in the order of the list. Each of them calls it with the same list and the same `tag`, which
    /// is below [`crate::IDLE_TAG`]; processes that share several communicators open them in the same order.
    ///
    /// # Errors
    /// A library that fails or does not return.
    pub fn open_communicator(
        &self,
        processes: Vec<usize>,
        tag: u32,
        deadline: Duration,
        ended: &dyn Fn() -> Option<String>,
    ) -> Result<CommunicatorNumber, EndpointError> {
        let (report, reports) = channel();
        self.post(Command::Call(Box::new(move |mover: &mut Mover| {
            let opened = mover.open_communicator(&processes, tag);
            let text = opened.map_err(|code| mover.calls().error_text(code));
            drop(report.send(text));
        })));
        let (path, function, cause) = (self.path.clone(), GROUP, GROUP_CAUSE);
        let late = |seconds| EndpointError::Late { path: path.clone(), function, seconds, cause };
        let opened = wait_for(&reports, deadline, ended, late)?;
        opened.map_err(|text| EndpointError::Call { path: self.path.clone(), function, text })
    }

    /// Frees communicators, of which no collective is under way. Does not wait; each of their processes does it, in the
    /// order in which they were opened, and before it opens others. Libraries have some thousand communicators at a
    /// time.
    pub fn free_communicators(&self, numbers: Vec<CommunicatorNumber>) {
        self.post(Command::Free(numbers));
    }

    /// Begins `collective` on a communicator, over memory that is at least as long as [`Collective::size_bytes`]. The
    /// memory comes back when it has ended; the sender of the channel is dropped where the run has failed. All
    /// processes of the communicator make the same calls in the same order.
    pub fn begin(
        &self,
        communicator: CommunicatorNumber,
        collective: Collective,
        memory: Vec<u64>,
    ) -> Receiver<Vec<u64>> {
        let (done, ended) = channel();
        self.post(Command::Join(Joint { communicator, collective, memory, done }));
        ended
    }

    /// `MPI_Allreduce` in place of a sum of fp32, by the library itself: the time that it takes.
    ///
    /// # Errors
    /// The error of the library.
    pub fn all_reduce_sum(&self, mut data: Vec<f32>) -> Result<(Vec<f32>, Duration), EndpointError> {
        let (report, reports) = channel();
        self.post(Command::Call(Box::new(move |mover: &mut Mover| {
            let started = Instant::now();
            let reduced = mover.calls().all_reduce_sum(&mut data);
            let text = reduced.map_err(|code| mover.calls().error_text(code));
            drop(report.send(text.map(|()| (data, started.elapsed()))));
        })));
        let reduced = reports.recv().map_err(|_| EndpointError::Thread("it has ended".into()))?;
        reduced.map_err(|text| EndpointError::Call { path: self.path.clone(), function: "MPI_Allreduce", text })
    }

    /// Makes no further call, now or later, and lets go of all messages: the run has failed.
    pub fn stop(&self) {
        let mut queue = lock(&self.shared.queue);
        queue.has_stopped = true;
        let dropped = std::mem::take(&mut queue.commands);
        drop(queue);
        self.shared.changed.notify_all();
        drop(dropped);
    }

    /// `MPI_Finalize`, within `deadline`, unless `ended` returns a reason. All processes have to call it.
    ///
    /// # Errors
    /// A library that fails or does not return.
    pub fn finish(&self, deadline: Duration, ended: &dyn Fn() -> Option<String>) -> Result<(), EndpointError> {
        let (report, reports) = channel();
        self.post(Command::Finish(report));
        let (path, function, cause) = (self.path.clone(), FINALIZE, FINALIZE_CAUSE);
        let late = |seconds| EndpointError::Late { path: path.clone(), function, seconds, cause };
        let finished = wait_for(&reports, deadline, ended, late)?;
        let text = |code: Code| format!("error {}", code.0);
        finished.map_err(|code| EndpointError::Call { path: self.path.clone(), function, text: text(code) })?;
        let thread = lock(&self.thread).take();
        thread.map_or(Ok(()), |thread| thread.join()).map_err(|_| EndpointError::Thread("it panicked".into()))
    }

    fn post(&self, command: Command) {
        let mut queue = lock(&self.shared.queue);
        if queue.has_stopped {
            // A command may take locks where it is dropped.
            drop(queue);
            return;
        }
        queue.commands.push(command);
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The report of the thread, as soon as it is there.
fn wait_for<T>(
    reports: &std::sync::mpsc::Receiver<T>,
    deadline: Duration,
    ended: &dyn Fn() -> Option<String>,
    late: impl Fn(f64) -> EndpointError,
) -> Result<T, EndpointError> {
    let started = Instant::now();
    loop {
        match reports.recv_timeout(GLANCE.min(deadline)) {
            Ok(report) => return Ok(report),
            Err(RecvTimeoutError::Disconnected) => return Err(EndpointError::Thread("it has ended".into())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(reason) = ended() {
            return Err(EndpointError::Ended(reason));
        }
        if started.elapsed() >= deadline {
            return Err(late(deadline.as_secs_f64()));
        }
    }
}

/// Opens and initialises the library, on the thread that will make all calls.
fn initialise(path: &std::path::Path, level: ThreadLevel) -> Result<(Mover, Ready), EndpointError> {
    let library = Library::open(path)?;
    let (abi, version) = (library.abi(), library.version().to_owned());
    let calls = library.calls;
    let failed = |function| {
        let calls = &calls;
        move |code: Code| EndpointError::Call { path: path.into(), function, text: calls.error_text(code) }
    };
    let given = calls.init(level).map_err(failed(INIT))?;
    let level = given.ok_or_else(|| EndpointError::Initialised { path: path.into() })?;
    if level < ThreadLevel::Funneled {
        return Err(EndpointError::Level { path: path.into(), got: level });
    }
    let (process, processes) = calls.world().map_err(failed("MPI_Comm_size"))?;
    Ok((Mover::new(calls, process), Ready { abi, version, level, process, processes }))
}

/// Moves messages until the end.
fn run(mut mover: Mover, shared: &Shared) {
    let mut idle_calls = 0;
    loop {
        let commands = {
            let mut queue = lock(&shared.queue);
            if queue.commands.is_empty() && mover.is_idle() && !queue.has_stopped {
                queue.is_asleep = true;
                let sleep = if idle_calls < DRAINING_CALLS { DRAINING } else { IDLE };
                queue = wait_timeout(&shared.changed, queue, sleep);
                queue.is_asleep = false;
            }
            if queue.has_stopped {
                drop(queue);
                return mover.release();
            }
            std::mem::take(&mut queue.commands)
        };
        let is_idle = commands.is_empty() && mover.is_idle();
        idle_calls = if is_idle { idle_calls.saturating_add(1) } else { 0 };
        let moved = if is_idle { mover.progress().map_err(End::from) } else { work(&mut mover, commands, shared) };
        match moved {
            Ok(()) => {}
            Err(End::Finished) => return,
            Err(End::Failed(failure)) => {
                let mut queue = lock(&shared.queue);
                queue.has_stopped = true;
                let dropped = std::mem::take(&mut queue.commands);
                let listeners = std::mem::take(&mut queue.on_failure);
                drop(queue);
                drop(dropped);
                mover.release();
                return listeners.into_iter().for_each(|listener| listener(&failure));
            }
        }
    }
}

/// Why the thread ends.
enum End {
    Finished,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// Posts `commands` and takes what has ended.
fn work(mover: &mut Mover, commands: Vec<Command>, shared: &Shared) -> Result<(), End> {
    for command in commands {
        match command {
            Command::Send { peer, tag, source } => mover.send(peer, tag, source)?,
            Command::Receive { peer, tag, target } => mover.receive(peer, tag, target)?,
            Command::Join(joint) => mover.join(joint)?,
            Command::Free(numbers) => mover.free_communicators(&numbers)?,
            Command::Call(call) => call(mover),
            Command::Finish(report) => {
                while !mover.is_idle() && !lock(&shared.queue).has_stopped {
                    mover.test()?;
                }
                let finished = mover.calls().finalize();
                lock(&shared.queue).has_stopped = true;
                let _ = report.send(finished);
                return Err(End::Finished);
            }
        }
    }
    if !mover.is_idle() && mover.test()? == 0 {
        // The peer may be a runnable thread of this core.
        std::thread::yield_now();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_does_not_return_is_named() {
        let (_kept, reports) = channel::<()>();
        let path: PathBuf = "/lib/libmpi.so.12".into();
        let late = |seconds| EndpointError::Late { path: path.clone(), function: INIT, seconds, cause: INIT_CAUSE };
        let waited = wait_for(&reports, Duration::from_millis(20), &|| None, late);
        assert_eq!(
            waited.expect_err("late").to_string(),
            "MPI_Init_thread of /lib/libmpi.so.12 has not returned within 0.0 s: a process of the launcher does not call it, or \
             the launcher belongs to another library; start every process by the library's own mpiexec, or raise \
             run.rendezvous_seconds"
        );
        let waited = wait_for(&reports, Duration::from_secs(60), &|| Some("process 1 failed".into()), late);
        assert_eq!(waited, Err(EndpointError::Ended("process 1 failed".into())));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let opened =
            Endpoint::open("/no/such/library".into(), ThreadLevel::Funneled, Duration::from_secs(60), &|| None);
        let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("/no/such/library cannot be opened as a library: "), "{error}");
    }
}
