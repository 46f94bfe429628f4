//! Graphs of kernels: a chain of launches that a rank makes again and again is one call of the driver.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Op;
use gpu::{Arguments, DriverError, FunctionHandle, Gpu, GraphHandle, KernelNode, LaunchShape};

use crate::owned::{Owned, own_graph};

/// Fewer kernels are launched one by one: a graph of them saves no time.
pub(crate) const FEWEST_KERNELS: usize = 4;
/// A series of this many is launched without waiting for more: the GPU does not wait for a long pass to be described.
pub(crate) const MOST_KERNELS: usize = 1024;
/// Graphs that a rank keeps at most, and their nodes. Other series are launched one by one.
const MOST_GRAPHS: usize = 128;
const MOST_NODES: usize = 8192;
/// Series that are remembered before the first of them comes again.
const MOST_SEEN: usize = 4096;

/// Whether a rank launches kernels as graphs.
#[derive(Clone, Debug)]
pub enum GraphUse {
    /// One by one.
    Off,
    /// As graphs where the driver has them; otherwise one by one, with a notice.
    Auto(Arc<GraphNotice>),
}

/// Hears once why there are no graphs.
pub struct GraphNotice {
    was_reported: AtomicBool,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl GraphNotice {
    /// `tell` is given the line.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> GraphNotice {
        GraphNotice { was_reported: AtomicBool::new(false), tell: Box::new(tell) }
    }

    /// Reports a line, unless one was reported before: the other ranks have the same driver.
    pub(crate) fn tell(&self, line: &str) {
        if !self.was_reported.swap(true, Ordering::Relaxed) {
            (self.tell)(line);
        }
    }
}

impl fmt::Debug for GraphNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphNotice").field("was_reported", &self.was_reported).finish_non_exhaustive()
    }
}

/// A launch that was not made yet.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The operation that it is of, for messages.
    pub op: Op,
    pub function: FunctionHandle,
    pub shape: LaunchShape,
    pub arguments: Arguments,
    /// A bit for each argument that changes from step to step.
    pub changing: u64,
}

impl Kernel {
    /// All arguments but those that change, each with its place.
    fn fixed(&self) -> impl Iterator<Item = (usize, &Vec<u8>)> {
        let is_fixed = |(place, _): &(usize, &Vec<u8>)| self.changing >> place & 1 == 0;
        self.arguments.values().iter().enumerate().filter(is_fixed)
    }

    /// Whether both are the same launch but for what changes.
    fn is_like(&self, other: &Kernel) -> bool {
        self.function == other.function
            && self.shape == other.shape
            && self.changing == other.changing
            && self.fixed().eq(other.fixed())
    }

    fn node(&self, place: usize) -> KernelNode<'_> {
        let Kernel { op: _, function, shape, arguments, changing: _ } = self;
        KernelNode { function: *function, shape: *shape, arguments, after: place.checked_sub(1) }
    }
}

/// A graph, and the kernels with the arguments that its next launch has.
struct Kept {
    graph: Owned<GraphHandle>,
    kernels: Vec<Kernel>,
}

impl Kept {
    fn create(gpu: &Arc<dyn Gpu>, kernels: &[Kernel]) -> Result<Kept, DriverError> {
        let nodes: Vec<KernelNode<'_>> = kernels.iter().enumerate().map(|(place, kernel)| kernel.node(place)).collect();
        let graph = own_graph(gpu, gpu.create_graph(&nodes)?);
        Ok(Kept { graph, kernels: kernels.to_vec() })
    }

    fn is_of(&self, kernels: &[Kernel]) -> bool {
        self.kernels.len() == kernels.len() && self.kernels.iter().zip(kernels).all(|(own, other)| own.is_like(other))
    }

    /// Gives nodes the arguments of `kernels` where they differ. Launches that run have their own copies.
    fn update(&mut self, gpu: &dyn Gpu, kernels: &[Kernel]) -> Result<(), DriverError> {
        for (place, (own, new)) in self.kernels.iter_mut().zip(kernels).enumerate() {
            if own.changing != 0 && own.arguments != new.arguments {
                gpu.set_node(self.graph.handle(), place, &new.node(place))?;
                own.arguments.clone_from(&new.arguments);
            }
        }
        Ok(())
    }
}

/// The graphs of a rank.
#[derive(Default)]
pub(crate) struct KeptGraphs {
    /// By the hash of what does not change.
    kept: HashMap<u64, Vec<Kept>>,
    graphs: usize,
    nodes: usize,
    /// Hashes of series that came once.
    seen: HashSet<u64>,
}

impl KeptGraphs {
    /// The graph of these kernels, with their arguments: made when they come for the second time. `None` where there is
    /// none, and no room for one.
    pub fn ready(&mut self, gpu: &Arc<dyn Gpu>, kernels: &[Kernel]) -> Result<Option<GraphHandle>, DriverError> {
        let key = key(kernels);
        let same_key = self.kept.get_mut(&key);
        if let Some(kept) = same_key.and_then(|all| all.iter_mut().find(|kept| kept.is_of(kernels))) {
            kept.update(&**gpu, kernels)?;
            return Ok(Some(kept.graph.handle()));
        }
        if self.seen.len() == MOST_SEEN {
            self.seen.clear();
        }
        if self.seen.insert(key) || self.graphs == MOST_GRAPHS || self.nodes + kernels.len() > MOST_NODES {
            return Ok(None);
        }
        let kept = Kept::create(gpu, kernels)?;
        let graph = kept.graph.handle();
        self.graphs += 1;
        self.nodes += kernels.len();
        self.kept.entry(key).or_default().push(kept);
        Ok(Some(graph))
    }
}

/// The hash of everything that does not change.
fn key(kernels: &[Kernel]) -> u64 {
    let mut words = Words(0);
    for kernel in kernels {
        (kernel.function, kernel.shape, kernel.changing).hash(&mut words);
        kernel.fixed().for_each(|(_, value)| words.write(value));
    }
    words.finish()
}

/// A hash of eight bytes at a time: series have some hundred kilobytes of arguments.
struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // The constant of FxHash: the golden ratio's digits, odd.
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use device::{Dtype, Tensor};
    use gpu::{Driver, ModuleImage};
    use softgpu::{Settings, SoftDriver};

    use super::*;

    /// A kernel of an address and a step that does nothing.
    const NOTHING: &str = "
.version 9.0
.target sm_90
.address_size 64
.visible .entry nothing(.param .u64 nothing_param_0, .param .u32 nothing_param_1)
{
    ret;
}
";

    fn opened() -> (Arc<dyn Gpu>, FunctionHandle) {
        let gpu = SoftDriver::new(1, Settings::default()).open(0).expect("a GPU");
        let module = gpu.load(ModuleImage::Ptx(NOTHING)).expect("code");
        let function = gpu.function(module, "nothing").expect("a kernel");
        (gpu, function)
    }

    /// Five launches at this address in this step, which changes.
    fn series(function: FunctionHandle, address: u64, step: u32) -> Vec<Kernel> {
        let op = Op::Fill { out: Tensor::new(0, 1, 1, Dtype::F32), value: 0.0 };
        let arguments = Arguments::new().with(&address.to_le_bytes()).with(&step.to_le_bytes());
        vec![Kernel { op, function, shape: LaunchShape::linear(1, 32), arguments, changing: 0b10 }; 5]
    }

    #[test]
    fn a_series_that_comes_again_has_a_graph_whatever_its_step() {
        let (gpu, function) = opened();
        let mut graphs = KeptGraphs::default();
        let mut ready = |address, step| graphs.ready(&gpu, &series(function, address, step)).expect("a driver");
        assert_eq!(ready(1, 1), None, "it came once");
        let first = ready(1, 2).expect("a graph");
        assert_eq!([ready(1, 2), ready(1, 3)], [Some(first); 2]);
        assert_eq!(ready(2, 3), None, "another address");
        assert!(ready(2, 4).is_some_and(|second| second != first));
    }

    #[test]
    fn graphs_are_bounded() {
        let (gpu, function) = opened();
        let mut graphs = KeptGraphs::default();
        let mut ready = |address| graphs.ready(&gpu, &series(function, address, 0)).expect("a driver").is_some();
        let addresses = || 0..2 * MOST_GRAPHS as u64;
        assert_eq!(addresses().filter(|address| ready(*address)).count(), 0);
        for _ in 0..2 {
            assert_eq!(addresses().filter(|address| ready(*address)).count(), MOST_GRAPHS);
        }
    }
}
