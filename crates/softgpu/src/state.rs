//! All that a GPU holds, behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpu::{
    DriverError, DriverErrorKind, EventHandle, FunctionHandle, GraphHandle, ModuleHandle, PinnedHandle, StreamHandle,
};

use crate::code::Kernel;
use crate::execute::{Fault, FaultKind, Launch, Limits, run};
use crate::memory::global::Global;
use crate::modules::LoadedModule;
use crate::settings::Settings;
use crate::streams::{Capture, Graph, Item, Point, Points, Queue, Random, Ready, Work};

/// All that a GPU holds.
#[derive(Debug)]
pub struct State {
    /// Its memory.
    pub global: Global,
    /// Pinned memory.
    pub pinned: HashMap<PinnedHandle, Vec<u8>>,
    /// Code.
    pub modules: HashMap<ModuleHandle, LoadedModule>,
    /// Kernels that were asked for.
    pub functions: HashMap<FunctionHandle, Function>,
    /// Work that has not ended.
    pub streams: BTreeMap<StreamHandle, Queue>,
    /// Events, and the point that each names.
    pub events: HashMap<EventHandle, Option<Point>>,
    /// Points.
    pub points: Points,
    /// Graphs.
    pub graphs: HashMap<GraphHandle, Arc<Graph>>,
    /// Captures.
    pub captures: Vec<Capture>,
    /// The first failure, which every later call returns.
    pub failure: Option<DriverError>,
    random: Random,
    limits: Limits,
    next_handle: u64,
}

/// A kernel that was asked for.
#[derive(Clone, Debug)]
pub struct Function {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Its module.
    pub module: ModuleHandle,
    /// The most dynamic shared memory of a launch.
    pub allowed_shared: u32,
}

impl State {
    /// Nothing yet.
    pub fn new(settings: &Settings) -> State {
        State {
            global: Global::default(),
            pinned: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: BTreeMap::new(),
            events: HashMap::new(),
            points: Points::default(),
            graphs: HashMap::new(),
            captures: vec![],
            failure: None,
            random: Random::new(settings.seed),
            limits: Limits { warp_instructions: settings.max_warp_instructions },
            next_handle: 1,
        }
    }

    /// A number that no handle had before.
    pub fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// The failure, if there was one.
    pub fn check(&self, call: &'static str) -> Result<(), DriverError> {
        match &self.failure {
            Some(failure) => Err(DriverError { call, ..failure.clone() }),
            None => Ok(()),
        }
    }

    /// Runs the next piece of work of a stream that is drawn among those that have some; `false` where none has.
    pub fn run_any(&mut self) -> bool {
        let points = &self.points;
        let ready: Vec<StreamHandle> =
            self.streams.iter().filter(|(_, queue)| queue.is_ready(points)).map(|(stream, _)| *stream).collect();
        let Some(stream) = ready.get(self.random.below(ready.len())) else { return false };
        let Some(queue) = self.streams.get_mut(stream) else { return false };
        match queue.take(&self.points, &mut self.random) {
            Ready::Work(work) => {
                // After a failure nothing runs any more, but streams become empty.
                if self.failure.is_none() || matches!(work, Work::Record(_)) {
                    if let Err(failure) = self.run_work(work) {
                        self.failure.get_or_insert(failure);
                    }
                }
                true
            }
            Ready::Waits | Ready::Empty => true,
        }
    }

    /// Work that has not been run.
    pub fn backlog(&self) -> usize {
        self.streams.values().map(Queue::len).sum()
    }

    /// Adds work to a stream, or to the capture that it takes part in.
    pub fn submit(&mut self, call: &'static str, stream: StreamHandle, work: Work) -> Result<(), DriverError> {
        self.check(call)?;
        if let Some(capture) = self.captures.iter_mut().find(|capture| capture.has_stream(stream)) {
            capture.add(stream, work);
            return Ok(());
        }
        self.queue(call, stream)?.push(Item::Work(work));
        Ok(())
    }

    /// The queue of a stream.
    pub fn queue(&mut self, call: &'static str, stream: StreamHandle) -> Result<&mut Queue, DriverError> {
        self.streams.get_mut(&stream).ok_or_else(|| invalid(call, format!("stream {} does not exist", stream.0)))
    }

    fn run_work(&mut self, work: Work) -> Result<(), DriverError> {
        match work {
            Work::Record(point) => {
                self.points.reach(point);
                Ok(())
            }
            Work::Wait(_) => Ok(()),
            Work::Launch(launch) => {
                let launch = Launch {
                    kernel: &launch.kernel,
                    shape: launch.shape,
                    parameters: launch.parameters.clone(),
                    limits: self.limits,
                };
                run(&launch, &mut self.global).map_err(|fault| failed(&fault))
            }
            Work::Upload { to, pinned, offset_bytes, bytes } => {
                let from = self.pinned.get(&pinned).and_then(|pinned| pinned.get(offset_bytes..offset_bytes + bytes));
                let to = self.global.range_mut(to.0, bytes);
                copy_range("upload", from, to)
            }
            Work::Download { pinned, offset_bytes, from, bytes } => {
                let from = self.global.range(from.0, bytes);
                let to =
                    self.pinned.get_mut(&pinned).and_then(|pinned| pinned.get_mut(offset_bytes..offset_bytes + bytes));
                copy_range("download", from, to)
            }
            Work::Copy { to, from, bytes } => {
                let from = self.global.range(from.0, bytes).map(<[u8]>::to_vec);
                let to = self.global.range_mut(to.0, bytes);
                copy_range("copy", from.as_deref(), to)
            }
            Work::Fill { to, value, bytes } => match self.global.range_mut(to.0, bytes) {
                Some(range) => {
                    range.fill(value);
                    Ok(())
                }
                None => Err(invalid("fill", "memory was freed before its work had ended")),
            },
        }
    }
}

fn copy_range(call: &'static str, from: Option<&[u8]>, to: Option<&mut [u8]>) -> Result<(), DriverError> {
    match (from, to) {
        (Some(from), Some(to)) => {
            to.copy_from_slice(from);
            Ok(())
        }
        _ => Err(invalid(call, "memory was freed before its work had ended")),
    }
}

/// An invalid argument.
pub fn invalid(call: &'static str, text: impl Into<String>) -> DriverError {
    DriverError { call, kind: DriverErrorKind::InvalidArgument, text: text.into() }
}

fn failed(fault: &Fault) -> DriverError {
    let kind = match fault.kind {
        FaultKind::Endless => DriverErrorKind::Timeout,
        FaultKind::Access
        | FaultKind::Misaligned
        | FaultKind::Undeclared
        | FaultKind::Unwritten
        | FaultKind::Race
        | FaultKind::Barrier
        | FaultKind::Trap
        | FaultKind::Invalid => DriverErrorKind::KernelFault,
    };
    DriverError { call: "launch", kind, text: fault.text.clone() }
}
