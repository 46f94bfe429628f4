//! A process of a group of several, with its connection to the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comm::processes::MpiEndpoint;
use config::RunConfig;
use mesh::Rank;
use rendezvous::{Control, ControlError, FailureReport, Printer, ProcessEntry, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sync::lock;
use train::Setup;

use crate::failure::Failure;
use crate::gpus::devices;
use crate::memory::host::{HostMemory, HostProcess};
use crate::process_group::gpu_links::{GpuLinks, GpuPlace, ProcessGpus};
use crate::process_group::place::Place;
use crate::signals::interrupt::Interrupt;

/// Longest wait for a process that works. The control channel notices the end of a process and a silent host at once,
/// so this only has to be longer than any work.
const WORKING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Time in which a process that lives answers that it has heard of a failure.
const ANSWER: Duration = Duration::from_secs(1);

/// Time in which other processes wait for process 0 to name those that do not answer. Open MPI's launcher ends it with
/// the first process that ends.
const LAST_WORD: Duration = Duration::from_millis(1750);

/// A process of a group of several, with its connection to the others.
pub struct GroupMember {
    /// In touch with all of them.
    pub control: Arc<Control>,
    pub place: Place,
    /// The secret of all, for this run.
    pub token: Token,
    /// The library of MPI, where a run moves its messages over it.
    pub mpi: Option<Arc<MpiEndpoint>>,
    /// How GPUs are joined, by run.
    gpu_links: Box<Mutex<Vec<(RunConfig, GpuLinks)>>>,
    /// Deliveries so far: all processes count the same ones.
    deliveries: AtomicUsize,
    deadline: Duration,
}

/// The result of work that one process does for all.
pub enum Part<'a, T> {
    /// This process did it.
    First(T),
    /// Process 0 did it.
    Other(&'a GroupMember),
}

impl GroupMember {
    /// One that has met the others, without a library of MPI. Others are waited for until `deadline` at the end.
    pub fn new(control: Arc<Control>, place: Place, token: Token, deadline: Duration) -> GroupMember {
        let (gpu_links, deliveries) = (Box::default(), AtomicUsize::new(0));
        GroupMember { control, place, token, mpi: None, gpu_links, deliveries, deadline }
    }

    /// Number of processes.
    pub fn processes(&self) -> usize {
        self.place.processes
    }

    /// Whether this is process 0.
    pub fn is_first(&self) -> bool {
        self.place.process == 0
    }

    /// The memory of the run of `setup` on all hosts.
    ///
    /// # Errors
    /// Ranks that cannot be placed.
    pub fn memory(&self, config: &RunConfig, setup: &Setup) -> Result<Vec<HostMemory>, Failure> {
        let ranks = self.place.ranks_of_processes(&setup.mesh, config.run.placement)?;
        let all = self.control.directory().processes.iter().zip(ranks);
        let all: Vec<HostProcess> = all.map(|(entry, ranks)| HostProcess { host: entry.host.clone(), ranks }).collect();
        HostMemory::of_hosts(setup, &all, config.run.memory_every)
    }

    /// The next value of a count that all processes share, if they call it equally often.
    pub fn next_delivery(&self) -> usize {
        self.deliveries.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a signal that reached another process as if it had reached this one.
    pub fn note_signal(&self, interrupt: &Interrupt) {
        if let Some(stop_signal) = self.control.stop_signal() {
            interrupt.note(stop_signal.signal);
        }
    }

    /// The `bytes` of process 0, on all processes. The others wait while process 0 works.
    ///
    /// # Errors
    /// A failure of the run.
    pub fn broadcast(&self, topic: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.control.broadcast(topic, bytes, WORKING).map_err(|error| self.failed(error))
    }

    /// The `bytes` of all processes by number, on process 0, which waits while others work; `None` on the others.
    ///
    /// # Errors
    /// A failure of the run.
    pub fn gather(&self, topic: &str, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        self.control.gather(topic, bytes, WORKING).map_err(|error| self.failed(error))
    }

    /// Sends `bytes` to process 0, which takes them with [`GroupMember::take`].
    ///
    /// # Errors
    /// More bytes than a message has.
    pub fn send(&self, topic: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        self.control.send_to_first(topic, bytes).map_err(|error| self.failed(error))
    }

    /// The next bytes that `process` sent, on process 0, which waits while `process` works.
    ///
    /// # Errors
    /// A failure of the run.
    pub fn take(&self, topic: &str, process: usize) -> Result<Vec<u8>, Failure> {
        self.control.receive_from(process, topic, WORKING).map_err(|error| self.failed(error))
    }

    /// How GPUs are joined, decided together with the other processes. `host` are the ranks of this host, in order.
    ///
    /// # Errors
    /// See [`GpuLinks::decide`].
    pub fn gpu_links(&self, config: &RunConfig, setup: &Setup, host: &[Rank]) -> Result<GpuLinks, Failure> {
        if let Some(known) = self.known_links(config) {
            return Ok(known);
        }
        let ranks = self.place.ranks_of(&setup.mesh, config.run.placement)?;
        let device = devices::run_device(config)?;
        let gpus = devices::of_ranks(&device, host, &ranks).into_iter().map(GpuPlace::of).collect();
        let library = devices::nccl();
        let version = library.as_ref().map(|library| library.version()).map_err(String::clone);
        let own = ProcessGpus { host: self.place.host.clone(), ranks: ranks.len(), gpus, nccl: version };
        let members: Vec<ProcessGpus> = self.all_gather("GPUs of processes", &own)?;
        let links = GpuLinks::decide(config, &members, library)?;
        lock(&self.gpu_links).push((config.clone(), links.clone()));
        Ok(links)
    }

    /// The links that were decided before.
    pub fn known_links(&self, config: &RunConfig) -> Option<GpuLinks> {
        let known = lock(&self.gpu_links);
        known.iter().find(|(other, _)| other == config).map(|(_, links)| links.clone())
    }

    /// The values of all processes by number, on all processes.
    ///
    /// # Errors
    /// A failure of the run.
    pub fn all_gather<T: Serialize + DeserializeOwned>(&self, topic: &str, own: &T) -> Result<Vec<T>, Failure> {
        let malformed = |error: serde_json::Error| Failure::Work(format!("{topic}: {error}"));
        let own = serde_json::to_vec(own).map_err(malformed)?;
        let all = match self.gather(topic, own)? {
            None => vec![],
            Some(all) => {
                let values: Result<Vec<T>, _> = all.iter().map(|value| serde_json::from_slice(value)).collect();
                serde_json::to_vec(&values.map_err(malformed)?).map_err(malformed)?
            }
        };
        serde_json::from_slice(&self.broadcast(topic, all)?).map_err(malformed)
    }

    /// Does `work` in process 0; the others wait until it is done.
    ///
    /// # Errors
    /// The failure of `work`, on all processes.
    pub fn once<T>(&self, topic: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<Part<'_, T>, Failure> {
        if !self.is_first() {
            return self.broadcast(topic, vec![]).map(|_| Part::Other(self));
        }
        let done = work().inspect_err(|failure| self.report(failure))?;
        self.broadcast(topic, vec![]).map(|_| Part::First(done))
    }

    /// Makes `failure` one of the run.
    pub fn report(&self, failure: &Failure) {
        let printer = if self.is_first() { Printer::Reporter } else { Printer::Every };
        self.control.report(FailureReport { cause: failure.to_string(), printer, ..FailureReport::default() });
    }

    /// `failure` with the processes that do not answer any more, on process 0. Where a rank was late, the first one
    /// that noticed may have waited for a rank that itself waits for one of these.
    pub fn with_silent(&self, failure: Failure) -> Failure {
        let Failure::Work(text) = &failure else { return failure };
        if self.control.failure().is_none_or(|reported| reported.report.rank.is_none()) {
            return failure;
        }
        let limit = if self.is_first() { ANSWER } else { LAST_WORD };
        let silent: Vec<String> = self.control.unanswered(limit).into_iter().map(ProcessEntry::named).collect();
        match silent.as_slice() {
            _ if !self.is_first() => failure,
            [] => failure,
            silent => Failure::Work(format!(
                "{text}\n{} {} not answered since then: stopped, or the host or the network is down",
                silent.join(", "),
                if silent.len() == 1 { "has" } else { "have" }
            )),
        }
    }

    /// Says goodbye: to the library of MPI, and to the other processes.
    ///
    /// # Errors
    /// Failures of other processes, and a library that does not return in time.
    pub fn finish(self) -> Result<(), Failure> {
        let GroupMember { control, mpi, deadline, .. } = self;
        if let Some(mpi) = mpi {
            let ended = || control.failure().map(|failure| failure.to_string());
            mpi.finish(deadline, &ended).map_err(|error| Failure::Work(error.to_string())).inspect_err(|failure| {
                control.report(FailureReport { cause: failure.to_string(), ..FailureReport::default() });
            })?;
        }
        finish(control, deadline)
    }

    fn failed(&self, error: ControlError) -> Failure {
        failed(error, self.place.process)
    }
}

/// The failure that process `own` hears by `error`.
fn failed(error: ControlError, own: usize) -> Failure {
    match &error {
        ControlError::Failed(reported)
            if own > 0 && reported.process == 0 && reported.report.printer == Printer::Reporter =>
        {
            Failure::OfFirst(error.to_string())
        }
        ControlError::Failed(_)
        | ControlError::Deadline { .. }
        | ControlError::Left { .. }
        | ControlError::TooLarge { .. } => Failure::Work(error.to_string()),
    }
}

/// Says goodbye, once the last other owner of `control` is gone.
fn finish(control: Arc<Control>, deadline: Duration) -> Result<(), Failure> {
    match Arc::try_unwrap(control) {
        Ok(control) => {
            let own = control.process();
            control.finish(deadline).map_err(|error| failed(error, own))
        }
        Err(_) => Err(Failure::Work("the control channel is still in use at the end of the run".into())),
    }
}
