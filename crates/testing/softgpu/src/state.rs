//! All that a GPU holds, after one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gpu::{
    DevicePointer, DriverError, DriverErrorKind, EventHandle, FunctionHandle, GraphHandle, ModuleHandle, PinnedHandle,
    StreamHandle,
};

use crate::checks::{AccessRanges, Check, Checks};
use crate::code::Kernel;
use crate::counters::KernelCounts;
use crate::execute::{Fault, FaultKind, Launch, Limits, Rule, SpareRegisters, run, touch_range};
use crate::faults::{FaultPlan, PlannedFault};
use crate::memory::global::Global;
use crate::modules::LoadedModule;
use crate::settings::Settings;
use crate::streams::{
    Capture, Clocks, Deal, DealtQueues, Entry, GpuLog, Graph, HostWork, Item, LaunchWork, Node, Origin, Point, Points,
    Queue, Random, Ready, Work, WorkLog, WorkOrder,
};

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
    pub points: Points,
    /// Points that streams may wait for and that no stream has yet.
    pub promised: HashSet<Point>,
    pub graphs: HashMap<GraphHandle, Arc<Graph>>,
    /// The memory that the next launch of a stream may use.
    pub expected: HashMap<StreamHandle, AccessRanges>,
    pub captures: Vec<Capture>,
    /// The first failure, which every later call returns.
    pub failure: Option<DriverError>,
    /// Which work comes before which.
    clocks: Clocks,
    /// Which work uses the memory of which, where somebody asks.
    log: Option<GpuLog>,
    /// Instructions that have run.
    pub counts: KernelCounts,
    /// Room for the registers of the next launch.
    spare: SpareRegisters,
    checks: Checks,
    rule: Rule,
    faults: FaultPlan,
    calls: u64,
    allocations: u64,
    launches: u64,
    random: Random,
    limits: Limits,
    next_handle: u64,
    /// Hardware queues of streams.
    pub dealt: DealtQueues,
    /// Pieces of work that were submitted.
    submitted: u64,
    /// Bytes that libraries have taken without an address.
    pub taken_bytes: u64,
}

/// A kernel that was asked for.
#[derive(Clone, Debug)]
pub struct Function {
    pub kernel: Arc<Kernel>,
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
            promised: HashSet::new(),
            graphs: HashMap::new(),
            expected: HashMap::new(),
            captures: vec![],
            failure: None,
            clocks: Clocks::default(),
            log: None,
            counts: KernelCounts::default(),
            spare: SpareRegisters::default(),
            checks: settings.checks.clone(),
            rule: Rule::of(settings.capability.major),
            faults: settings.faults.clone(),
            calls: 0,
            allocations: 0,
            launches: 0,
            random: Random::new(settings.seed),
            limits: Limits { warp_instructions: settings.max_warp_instructions },
            next_handle: 1,
            dealt: DealtQueues::new(settings.hardware_queues),
            submitted: 0,
            taken_bytes: 0,
        }
    }

    /// Logs from now on which work uses the memory of which.
    pub fn log_work(&mut self, ordinal: usize, log: &WorkLog) {
        self.log = Some(GpuLog::new(ordinal, log.clone()));
    }

    /// A number that no handle had before.
    pub fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// The failure, if there was one.
    pub fn check(&mut self, call: &'static str) -> Result<(), DriverError> {
        self.calls += 1;
        if self.faults.has(PlannedFault::LostAtCall(self.calls)) {
            let text = format!("planned at call {}", self.calls);
            self.failure = Some(DriverError { call, kind: DriverErrorKind::Lost, text });
        }
        match &self.failure {
            Some(failure) => Err(DriverError { call, ..failure.clone() }),
            None => Ok(()),
        }
    }

    /// Counts an allocation; `true` where its failure is planned.
    pub fn is_planned_out_of_memory(&mut self) -> bool {
        self.allocations += 1;
        self.faults.has(PlannedFault::OutOfMemoryAtAllocation(self.allocations))
    }

    fn planned_launch_failure(&mut self) -> Option<DriverError> {
        self.launches += 1;
        let kind = if self.faults.has(PlannedFault::EccAtLaunch(self.launches)) {
            DriverErrorKind::Ecc
        } else if self.faults.has(PlannedFault::TimeoutAtLaunch(self.launches)) {
            DriverErrorKind::Timeout
        } else {
            return None;
        };
        Some(DriverError { call: "launch", kind, text: format!("planned at launch {}", self.launches) })
    }

    /// Runs the next piece of work of a stream that is drawn among those that have some; `false` where none has.
    pub fn run_any(&mut self) -> bool {
        let ready = self.dealt.ready(&self.streams, &self.points);
        let Some(stream) = ready.get(self.random.below(ready.len())) else { return false };
        let Some(queue) = self.streams.get_mut(stream) else { return false };
        let stream = *stream;
        match queue.take(&self.points, &mut self.random) {
            Ready::Work(work, host) => {
                self.clocks.wait(Origin::Stream(stream), &host);
                self.run_unless_failed(Origin::Stream(stream), work);
            }
            Ready::Node(node, work, host) => {
                self.clocks.wait(Origin::Stream(stream), &host);
                self.run_node(stream, node, work);
            }
            Ready::GraphEnded(after) => self.clocks.wait(Origin::Stream(stream), &after),
            Ready::Waits | Ready::Empty => {}
        }
        true
    }

    /// After a failure nothing runs any more, but streams become empty.
    fn run_unless_failed(&mut self, origin: Origin, work: Work) {
        if (self.failure.is_none() || matches!(work, Work::Record(_)))
            && let Err(failure) = self.run_work(origin, work)
        {
            self.failure.get_or_insert(failure);
        }
    }

    /// Runs a node of the graph in front of a stream: after the nodes that it follows, and in no order with others.
    fn run_node(&mut self, stream: StreamHandle, node: Node, work: Work) {
        let chain = Origin::Chain(stream, node.chain);
        let before_graph = self.clocks.of(Origin::Stream(stream));
        let Some(graph) = self.streams.get_mut(&stream).and_then(Queue::graph) else { return };
        self.clocks.set(chain, graph.before(node, &before_graph));
        self.run_unless_failed(chain, work);
        if let Some(graph) = self.streams.get_mut(&stream).and_then(Queue::graph) {
            graph.end(node, self.clocks.of(chain));
        }
    }

    /// The host has seen that all work of a stream has ended.
    pub fn host_saw_stream(&mut self, stream: StreamHandle) {
        let clock = self.clocks.of(Origin::Stream(stream));
        self.clocks.host_waits(&clock);
    }

    /// The host has seen that a point is reached.
    pub fn host_saw_point(&mut self, point: Point) {
        if let Some(clock) = self.points.clock(point) {
            self.clocks.host_waits(clock);
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
        self.push(call, stream, Item::Work(work))
    }

    /// Adds an item to the queue of a stream.
    pub fn push(&mut self, call: &'static str, stream: StreamHandle, item: Item) -> Result<(), DriverError> {
        let host = self.clocks.host();
        self.dealt.deal(stream, Deal::AtFirstWork);
        self.submitted += 1;
        let place = self.submitted;
        self.queue(call, stream)?.push(Entry { item, host, place });
        Ok(())
    }

    /// The queue of a stream.
    pub fn queue(&mut self, call: &'static str, stream: StreamHandle) -> Result<&mut Queue, DriverError> {
        self.streams.get_mut(&stream).ok_or_else(|| invalid(call, format!("stream {} does not exist", stream.0)))
    }

    fn run_work(&mut self, origin: Origin, work: Work) -> Result<(), DriverError> {
        match work {
            Work::Record(point) => {
                self.points.reach(point, self.clocks.of(origin));
                return Ok(());
            }
            Work::Wait(point) => {
                self.wait_for(origin, point);
                return Ok(());
            }
            Work::Remote { until, ref end } => {
                self.wait_for(origin, until);
                if end.is_none() {
                    return Ok(());
                }
            }
            Work::Launch(_)
            | Work::Host(_)
            | Work::Upload { .. }
            | Work::Download { .. }
            | Work::Copy { .. }
            | Work::Fill { .. } => {}
        }
        let order = self.clocks.begin(origin);
        let ended = self.run_in_order(work, &order);
        self.log.iter_mut().for_each(|log| log.add(origin, order.number, &order.used));
        ended
    }

    fn wait_for(&mut self, origin: Origin, point: Point) {
        if let Some(clock) = self.points.clock(point) {
            self.clocks.wait(origin, clock);
        }
    }

    fn run_in_order(&mut self, work: Work, order: &WorkOrder) -> Result<(), DriverError> {
        match work {
            Work::Launch(launch) => self.run_launch(&launch, order),
            Work::Host(work) | Work::Remote { end: Some(work), .. } => self.run_host_work(&work, order),
            Work::Upload { to, pinned, offset_bytes, bytes } => {
                self.touch("upload", to, bytes, order, true)?;
                let from = self.pinned.get(&pinned).and_then(|pinned| pinned.get(offset_bytes..offset_bytes + bytes));
                copy_range("upload", from, self.global.range_mut(to.0, bytes))
            }
            Work::Download { pinned, offset_bytes, from, bytes } => {
                self.touch("download", from, bytes, order, false)?;
                let to = self.pinned.get_mut(&pinned).and_then(|to| to.get_mut(offset_bytes..offset_bytes + bytes));
                copy_range("download", self.global.range(from.0, bytes), to)
            }
            Work::Copy { to, from, bytes } => {
                self.touch("copy", from, bytes, order, false)?;
                self.touch("copy", to, bytes, order, true)?;
                let from = self.global.range(from.0, bytes).map(<[u8]>::to_vec);
                copy_range("copy", from.as_deref(), self.global.range_mut(to.0, bytes))
            }
            Work::Fill { to, value, bytes } => {
                self.touch("fill", to, bytes, order, true)?;
                copy_range("fill", Some(&vec![value; bytes]), self.global.range_mut(to.0, bytes))
            }
            Work::Record(_) | Work::Wait(_) | Work::Remote { end: None, .. } => Ok(()),
        }
    }

    fn run_launch(&mut self, work: &LaunchWork, order: &WorkOrder) -> Result<(), DriverError> {
        if let Some(failure) = self.planned_launch_failure() {
            return Err(failure);
        }
        let launch = Launch {
            kernel: &work.kernel,
            shape: work.shape,
            parameters: work.parameters.clone(),
            limits: self.limits,
            checks: &self.checks,
            ranges: work.ranges.as_ref(),
            order,
            rule: self.rule,
        };
        let counts = run(&launch, &mut self.global, &mut self.spare).map_err(|fault| failed(&fault))?;
        self.counts.add(&work.kernel, counts);
        Ok(())
    }

    fn run_host_work(&mut self, work: &HostWork, order: &WorkOrder) -> Result<(), DriverError> {
        let HostWork { call, reads, writes, compute } = work;
        let mut read = vec![];
        for (from, bytes) in reads {
            self.touch(call, *from, *bytes, order, false)?;
            let from = self.global.range(from.0, *bytes);
            read.push(from.ok_or_else(|| invalid(call, "memory was freed before its work had ended"))?.to_vec());
        }
        for ((to, bytes), result) in writes.iter().zip(compute(&read)) {
            self.touch(call, *to, *bytes, order, true)?;
            copy_range(call, Some(&result), self.global.range_mut(to.0, *bytes))?;
        }
        Ok(())
    }

    /// Checks that copies and fills have an order with other streams.
    fn touch(
        &mut self,
        call: &'static str,
        pointer: DevicePointer,
        bytes: usize,
        order: &WorkOrder,
        is_write: bool,
    ) -> Result<(), DriverError> {
        if self.checks.global == Check::Off {
            return Ok(());
        }
        touch_range(&mut self.global, pointer.0, bytes, order, is_write).map_err(|other| {
            let verb = if is_write { "written" } else { "read" };
            let other = other.map_or("another stream".into(), |other| other.to_string());
            let text = format!("{bytes} bytes at {:#x} are {verb} without an order with work of {other}", pointer.0);
            DriverError { call, kind: DriverErrorKind::KernelFault, text }
        })
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
