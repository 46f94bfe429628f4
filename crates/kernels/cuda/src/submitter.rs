//! Work of a rank on its way to the streams of the driver. Launches of the compute stream are gathered until something
//! else happens there or somebody waits for them, and are then launched together: as a graph, or one by one. Those of
//! other streams are single kernels between transfers, and are launched at once.

use std::sync::{Arc, Mutex};

use device::{DeviceError, KeptTimes, Op, Stream, StreamEvent, Tensor};
use gpu::{DriverError, StreamHandle};
use sync::lock;

use crate::events::Events;
use crate::failure::{accelerator_error, described};
use crate::graphs::{FEWEST_KERNELS, GraphUse, KeptGraphs, Kernel, MOST_KERNELS};
use crate::pinned::PinnedRing;
use crate::rank_memory::RankMemory;

/// State of all streams.
pub(crate) struct Submissions {
    pub events: Events,
    pub ring: PinnedRing,
    /// The last operation of each stream, for messages of failures that come later.
    pub last: [Option<Op>; Stream::COUNT],
}

/// The stream whose launches are gathered.
const GATHERED: Stream = Stream::Compute;

/// Launches that were gathered.
#[derive(Default)]
struct Series {
    kernels: Vec<Kernel>,
    /// The number of the job that the first of them belongs to.
    first_job: u64,
    graphs: KeptGraphs,
}

/// Whether launches are gathered.
#[derive(Clone, Debug)]
struct Gathering {
    graphs: GraphUse,
    times: KeptTimes,
}

/// See the top of the file.
pub(crate) struct Submitter {
    pub memory: Arc<RankMemory>,
    pub submissions: Mutex<Submissions>,
    gathering: Mutex<Gathering>,
    /// Whoever holds its lock may take the others, and not the other way round.
    series: Mutex<Series>,
}

impl Submitter {
    /// Launches one by one until [`Submitter::use_graphs`].
    pub fn new(memory: Arc<RankMemory>, ring: PinnedRing) -> Submitter {
        let events = Events::new(Stream::ALL.map(|stream| memory.stream(stream)));
        let submissions = Mutex::new(Submissions { events, ring, last: [None; Stream::COUNT] });
        let gathering = Mutex::new(Gathering { graphs: GraphUse::Off, times: KeptTimes::OfWaits });
        Submitter { memory, submissions, gathering, series: Mutex::default() }
    }

    /// Launches as `graphs` say from here on.
    pub fn use_graphs(&self, graphs: GraphUse) {
        lock(&self.gathering).graphs = graphs;
    }

    /// Keeps the times of these points from here on. A graph has none within.
    pub fn keep_times(&self, times: KeptTimes) {
        lock(&self.gathering).times = times;
    }

    fn gathers(&self) -> bool {
        let gathering = lock(&self.gathering);
        matches!((&gathering.graphs, gathering.times), (GraphUse::Auto(_), KeptTimes::OfWaits))
    }

    /// Takes the launches of an operation, in their order.
    ///
    /// # Errors
    /// The driver's, of these and of earlier launches.
    pub fn submit(&self, stream: Stream, op: &Op, kernels: Vec<Kernel>) -> Result<(), DeviceError> {
        if stream != GATHERED || !self.gathers() {
            self.launch_gathered(stream)?;
            self.count(stream, op);
            return kernels.iter().try_for_each(|kernel| self.launch(stream, kernel));
        }
        let mut series = lock(&self.series);
        let job = self.count(stream, op);
        if series.kernels.is_empty() {
            series.first_job = job;
        }
        series.kernels.extend(kernels);
        if series.kernels.len() >= MOST_KERNELS { self.launch_series(&mut series) } else { Ok(()) }
    }

    /// Notes a job of `stream`, and returns its number. One thread at a time submits to a stream, so the driver has the
    /// same order.
    pub fn count(&self, stream: Stream, op: &Op) -> u64 {
        let mut submissions = lock(&self.submissions);
        submissions.last[stream.index()] = Some(*op);
        submissions.events.count(stream)
    }

    /// Launches all that was gathered for `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_gathered(&self, stream: Stream) -> Result<(), DeviceError> {
        if stream == GATHERED { self.launch_all() } else { Ok(()) }
    }

    /// Launches all that was gathered.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_all(&self) -> Result<(), DeviceError> {
        self.launch_series(&mut lock(&self.series))
    }

    /// Launches what was gathered until `event`, which then has a point of the driver.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_until(&self, event: StreamEvent) -> Result<(), DeviceError> {
        if event.stream() != GATHERED {
            return Ok(());
        }
        let mut series = lock(&self.series);
        let is_gathered = !series.kernels.is_empty() && event.number() >= series.first_job;
        if is_gathered { self.launch_series(&mut series) } else { Ok(()) }
    }

    /// The point that `stream` has when all its jobs so far have ended. That of gathered launches is recorded when
    /// they are launched, if they still are the last jobs then, or else a later one is in its place.
    pub fn record(&self, stream: Stream) -> StreamEvent {
        let series = lock(&self.series);
        let mut submissions = lock(&self.submissions);
        let is_gathered = stream == GATHERED && !series.kernels.is_empty();
        match is_gathered {
            true => submissions.events.last(stream),
            false => submissions.events.record(&self.memory.gpu, stream),
        }
    }

    /// Releases all graphs. Work that uses them has ended.
    pub fn release_graphs(&self) {
        lock(&self.series).graphs = KeptGraphs::default();
    }

    fn launch_series(&self, series: &mut Series) -> Result<(), DeviceError> {
        if series.kernels.is_empty() {
            return Ok(());
        }
        let graph = self.graph(series);
        let Series { kernels, .. } = series;
        let launched = match graph {
            None => kernels.iter().try_for_each(|kernel| self.launch(GATHERED, kernel)),
            Some(graph) => {
                let launched = self.memory.gpu.launch_graph(self.memory.stream(GATHERED), graph);
                launched.map_err(|cause| accelerator_error(described_all(kernels), cause))
            }
        };
        kernels.clear();
        launched?;
        lock(&self.submissions).events.record(&self.memory.gpu, GATHERED);
        Ok(())
    }

    /// The graph of a series that has one. Graphs that cannot be had are used no more.
    fn graph(&self, series: &mut Series) -> Option<gpu::GraphHandle> {
        let GraphUse::Auto(notice) = lock(&self.gathering).graphs.clone() else { return None };
        if series.kernels.len() < FEWEST_KERNELS {
            return None;
        }
        series.graphs.ready(&self.memory.gpu, &series.kernels).unwrap_or_else(|cause| {
            self.use_graphs(GraphUse::Off);
            notice.tell(&format!("graphs  off, kernels are launched one by one: {cause}"));
            None
        })
    }

    fn launch(&self, stream: Stream, kernel: &Kernel) -> Result<(), DeviceError> {
        let Kernel { op, function, shape, arguments, changing: _ } = kernel;
        let launched = self.memory.gpu.launch(self.memory.stream(stream), *function, *shape, arguments);
        launched.map_err(|cause| accelerator_error(described(op), cause))
    }

    /// Copies host bytes to the arena as work of `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.launch_gathered(stream)?;
        let mut submissions = lock(&self.submissions);
        submissions.events.count(stream);
        let (place, handle) = (self.memory.address(to), self.memory.stream(stream));
        let uploaded = submissions.ring.upload(&self.memory.gpu, handle, place, from);
        uploaded.map_err(|cause| accelerator_error(format!("upload {to:?}"), cause))
    }

    /// Lets `stream` begin what follows after `event`.
    ///
    /// # Errors
    /// The driver's, of earlier work too.
    pub fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        if event.stream() != stream && event.number() > 0 {
            self.launch_until(event)?;
            self.launch_gathered(stream)?;
        }
        let mut submissions = lock(&self.submissions);
        let waited = submissions.events.wait(&self.memory.gpu, stream, event);
        waited.map_err(|cause| late_error("wait for a stream", submissions.last, cause))
    }

    /// Waits until all work of all streams has ended.
    ///
    /// # Errors
    /// The first failure.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.launch_all()?;
        // Without the lock: other threads submit to other streams meanwhile.
        let ended = self.memory.synchronize();
        let mut submissions = lock(&self.submissions);
        let ended = ended.and_then(|()| submissions.events.compare_clocks(&self.memory.gpu));
        ended.map_err(|cause| late_error("synchronize", submissions.last, cause))
    }

    /// The driver's stream of `stream`, for work of somebody else that follows all that was submitted.
    ///
    /// # Errors
    /// The driver's, of gathered launches.
    pub fn hand_over(&self, stream: Stream) -> Result<StreamHandle, DeviceError> {
        self.launch_gathered(stream)?;
        lock(&self.submissions).events.count(stream);
        Ok(self.memory.stream(stream))
    }
}

/// A failure of work, which the driver reports later: with the last operations that it can be.
fn late_error(what: &str, last: [Option<Op>; Stream::COUNT], cause: DriverError) -> DeviceError {
    let names: Vec<String> = last.iter().flatten().map(described).collect();
    let after = if names.is_empty() { "nothing".into() } else { names.join("; ") };
    accelerator_error(format!("{what} after {after}"), cause)
}

/// The operations of a graph.
fn described_all(kernels: &[Kernel]) -> String {
    let ends = kernels.first().zip(kernels.last());
    let (from, to) = ends.map_or_else(Default::default, |(from, to)| (described(&from.op), described(&to.op)));
    format!("{} kernels, from {from} to {to}", kernels.len())
}
