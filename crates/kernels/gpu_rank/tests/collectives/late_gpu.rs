//! A GPU that does its work as late and in as odd an order as it may: nothing runs before the host asks for its end,
//! and then streams advance at random, as far as waits allow. Copies read pinned memory when they run. Memory is that
//! of the host; of kernels it has those of `collectives.cu`, written once more.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;

use device::{Bf16, Element, F16};
use gpu::{
    Arguments, Capability, DeviceFacts, DevicePointer, DriverError, DriverErrorKind, EventHandle, FreeMemory,
    FunctionFacts, FunctionHandle, Gpu, GraphHandle, KernelNode, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle,
    StreamHandle, TensorMap, TensorTiles,
};

/// Addresses of allocations are this far apart.
const APART: u64 = 1 << 32;

enum Work {
    Upload { to: u64, pinned: u64, offset_bytes: usize, bytes: usize },
    Download { pinned: u64, offset_bytes: usize, from: u64, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Kernel { name: String, arguments: Vec<Vec<u8>> },
    Reach { event: u64, time: u64 },
    WaitFor { event: u64, time: u64 },
}

#[derive(Default)]
struct State {
    next: u64,
    random: u64,
    allocations: BTreeMap<u64, Vec<u8>>,
    pinned: HashMap<u64, Vec<u8>>,
    streams: BTreeMap<u64, VecDeque<Work>>,
    /// Of each event, how often it was recorded and the last of these that was reached.
    events: HashMap<u64, (u64, u64)>,
    functions: HashMap<u64, String>,
    /// Waits of each stream so far.
    waits: HashMap<u64, usize>,
    /// The stream and the number of a wait that is left out.
    dropped: Option<(u64, usize)>,
    /// Advances whenever it can.
    preferred: Option<u64>,
    /// Advances when nothing else can: that of the event whose wait was left out.
    avoided: Option<u64>,
    /// The stream on which an event was recorded last.
    recorded_on: HashMap<u64, u64>,
    has_faulted: bool,
    /// Memory for work outside of allocations.
    nowhere: Vec<u8>,
}

/// See the top of the file.
pub struct LateGpu {
    facts: DeviceFacts,
    state: Mutex<State>,
}

impl LateGpu {
    /// A GPU whose streams advance as `seed` says.
    pub fn new(seed: u64) -> LateGpu {
        let facts = DeviceFacts {
            ordinal: 0,
            name: "late GPU".into(),
            capability: Capability { major: 9, minor: 0 },
            memory_bytes: 1 << 30,
            multiprocessors: 4,
            max_shared_bytes: 0,
            uuid: [0; 16],
            bus_id: String::new(),
        };
        LateGpu { facts, state: Mutex::new(State { random: seed | 1, next: 1, ..State::default() }) }
    }

    /// Waits of a stream so far.
    pub fn waits(&self, stream: StreamHandle) -> usize {
        sync::lock(&self.state).waits.get(&stream.0).copied().unwrap_or(0)
    }

    /// Leaves out a wait of `stream`, which advances whenever it can.
    pub fn leave_out(&self, stream: StreamHandle, wait: usize) {
        let mut state = sync::lock(&self.state);
        state.dropped = Some((stream.0, wait));
        state.preferred = Some(stream.0);
    }

    /// Whether some work read or wrote what was no allocation any more.
    pub fn has_faulted(&self) -> bool {
        sync::lock(&self.state).has_faulted
    }

    fn with<T>(&self, call: impl FnOnce(&mut State) -> Result<T, &'static str>) -> Result<T, DriverError> {
        let mut state = sync::lock(&self.state);
        let refused =
            |text: &str| DriverError { call: "late", kind: DriverErrorKind::InvalidArgument, text: text.into() };
        call(&mut state).map_err(refused)
    }

    fn submit(&self, stream: StreamHandle, work: Work) -> Result<(), DriverError> {
        self.with(|state| {
            state.streams.get_mut(&stream.0).ok_or("a stream that does not exist")?.push_back(work);
            Ok(())
        })
    }
}

impl State {
    fn new_handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }

    fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let found = self.allocations.range_mut(..=address).next_back();
        let range = |start: u64| (address - start) as usize..(address - start) as usize + bytes;
        if let Some(memory) = found.and_then(|(start, memory)| memory.get_mut(range(*start))) {
            return memory;
        }
        self.has_faulted = true;
        self.nowhere.resize(bytes, 0);
        &mut self.nowhere
    }

    /// Advances streams at random until `ended` holds.
    fn run_until(&mut self, ended: impl Fn(&State) -> bool) -> Result<(), &'static str> {
        while !ended(self) {
            let ready: Vec<u64> = self
                .streams
                .iter()
                .filter(|(_, work)| match work.front() {
                    None => false,
                    Some(Work::WaitFor { event, time }) => {
                        self.events.get(event).is_none_or(|(_, reached)| reached >= time)
                    }
                    Some(_) => true,
                })
                .map(|(stream, _)| *stream)
                .collect();
            if ready.is_empty() {
                return Err("nothing can continue");
            }
            let preferred = self.preferred.filter(|stream| ready.contains(stream));
            let others: Vec<u64> = ready.iter().copied().filter(|stream| self.avoided != Some(*stream)).collect();
            let choice = if others.is_empty() { ready } else { others };
            let stream = preferred.unwrap_or_else(|| choice[self.below(choice.len())]);
            let work = self.streams.get_mut(&stream).expect("a stream").pop_front().expect("work");
            self.run(work);
        }
        Ok(())
    }

    fn run(&mut self, work: Work) {
        match work {
            Work::Upload { to, pinned, offset_bytes, bytes } => {
                let from = self.pinned[&pinned][offset_bytes..offset_bytes + bytes].to_vec();
                self.memory(to, bytes).copy_from_slice(&from);
            }
            Work::Download { pinned, offset_bytes, from, bytes } => {
                let from = self.memory(from, bytes).to_vec();
                self.pinned.get_mut(&pinned).expect("pinned")[offset_bytes..offset_bytes + bytes]
                    .copy_from_slice(&from);
            }
            Work::Copy { to, from, bytes } => {
                let from = self.memory(from, bytes).to_vec();
                self.memory(to, bytes).copy_from_slice(&from);
            }
            Work::Fill { to, value, bytes } => self.memory(to, bytes).fill(value),
            Work::Kernel { name, arguments } => self.kernel(&name, &arguments),
            Work::Reach { event, time } => {
                if let Some((_, reached)) = self.events.get_mut(&event) {
                    *reached = time;
                }
            }
            Work::WaitFor { .. } => {}
        }
    }

    fn kernel(&mut self, name: &str, arguments: &[Vec<u8>]) {
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(arguments[0][at..at + 4].try_into().expect("4 bytes")) as usize;
        let (members, run, len) = (half(512), half(516), word(&arguments[0], 520) as usize);
        assert_eq!(arguments[0].len(), 528, "the struct of the kernel");
        let out = word(&arguments[1], 0);
        let starts: Vec<u64> = (0..members).map(|member| word(&arguments[0], 8 * member)).collect();
        let width = if name.ends_with("i64") {
            8
        } else if name.ends_with("f32") {
            4
        } else {
            2
        };
        for index in 0..len {
            let place = (index * width) as u64;
            let terms: Vec<Vec<u8>> = starts.iter().map(|start| self.memory(start + place, width).to_vec()).collect();
            let joined = match name {
                "reduce_sum_f32" => sum::<f32>(&terms, run),
                "reduce_sum_bf16" => sum::<Bf16>(&terms, run),
                "reduce_sum_f16" => sum::<F16>(&terms, run),
                "reduce_sum_i64" => {
                    let sum = terms.iter().fold(0i64, |sum, term| sum.wrapping_add(bytemuck::pod_read_unaligned(term)));
                    sum.to_le_bytes().to_vec()
                }
                "reduce_max_f32" => {
                    let values = terms.iter().map(|term| bytemuck::pod_read_unaligned::<f32>(term));
                    values.reduce(f32::max).expect("a member").to_le_bytes().to_vec()
                }
                other => panic!("no kernel {other}"),
            };
            self.memory(out + place, width).copy_from_slice(&joined);
        }
    }
}

fn sum<E: Element>(terms: &[Vec<u8>], run: usize) -> Vec<u8> {
    let value = |term: &Vec<u8>| bytemuck::pod_read_unaligned::<E>(term).widen();
    let runs = terms.chunks(run).map(|run| run.iter().map(value).reduce(|a, b| a + b).expect("a member"));
    bytemuck::bytes_of(&E::narrow(runs.reduce(|a, b| a + b).expect("a run"))).to_vec()
}

impl Gpu for LateGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn enter(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn free_memory(&self) -> Result<FreeMemory, DriverError> {
        Ok(FreeMemory { free_bytes: self.facts.memory_bytes, total_bytes: self.facts.memory_bytes })
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePointer, DriverError> {
        self.with(|state| {
            let start = state.new_handle() * APART;
            state.allocations.insert(start, vec![0; bytes]);
            Ok(DevicePointer(start))
        })
    }

    fn free(&self, pointer: DevicePointer) -> Result<(), DriverError> {
        self.with(|state| state.allocations.remove(&pointer.0).map(|_| ()).ok_or("an address that was not returned"))
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<PinnedHandle, DriverError> {
        self.with(|state| {
            let handle = state.new_handle();
            state.pinned.insert(handle, vec![0; bytes]);
            Ok(PinnedHandle(handle))
        })
    }

    fn free_pinned(&self, pinned: PinnedHandle) -> Result<(), DriverError> {
        self.with(|state| state.pinned.remove(&pinned.0).map(|_| ()).ok_or("a handle that does not exist"))
    }

    fn write_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError> {
        self.with(|state| {
            let memory = state.pinned.get_mut(&pinned.0).ok_or("a handle that does not exist")?;
            memory[offset_bytes..offset_bytes + from.len()].copy_from_slice(from);
            Ok(())
        })
    }

    fn read_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError> {
        self.with(|state| {
            let memory = state.pinned.get(&pinned.0).ok_or("a handle that does not exist")?;
            to.copy_from_slice(&memory[offset_bytes..offset_bytes + to.len()]);
            Ok(())
        })
    }

    fn upload(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        pinned: PinnedHandle,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.submit(stream, Work::Upload { to: to.0, pinned: pinned.0, offset_bytes, bytes })
    }

    fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        offset_bytes: usize,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.submit(stream, Work::Download { pinned: pinned.0, offset_bytes, from: from.0, bytes })
    }

    fn copy(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.submit(stream, Work::Copy { to: to.0, from: from.0, bytes })
    }

    fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError> {
        self.submit(stream, Work::Fill { to: to.0, value, bytes })
    }

    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        self.with(|state| {
            let handle = state.new_handle();
            state.streams.insert(handle, VecDeque::new());
            Ok(StreamHandle(handle))
        })
    }

    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        self.create_stream()
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.synchronize(stream)?;
        self.with(|state| state.streams.remove(&stream.0).map(|_| ()).ok_or("a handle that does not exist"))
    }

    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.with(|state| state.run_until(|state| state.streams.get(&stream.0).is_none_or(VecDeque::is_empty)))
    }

    fn has_ended(&self, stream: StreamHandle) -> Result<bool, DriverError> {
        self.synchronize(stream).map(|()| true)
    }

    fn create_event(&self) -> Result<EventHandle, DriverError> {
        self.with(|state| {
            let handle = state.new_handle();
            state.events.insert(handle, (0, 0));
            Ok(EventHandle(handle))
        })
    }

    fn destroy_event(&self, _: EventHandle) -> Result<(), DriverError> {
        // A wait keeps what was recorded, so the event lives on here.
        Ok(())
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), DriverError> {
        let time = self.with(|state| {
            let (recorded, _) = state.events.get_mut(&event.0).ok_or("a handle that does not exist")?;
            *recorded += 1;
            let time = *recorded;
            state.recorded_on.insert(event.0, stream.0);
            Ok(time)
        })?;
        self.submit(stream, Work::Reach { event: event.0, time })
    }

    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<(), DriverError> {
        let (time, is_left_out) = self.with(|state| {
            let (time, _) = *state.events.get(&event.0).ok_or("a handle that does not exist")?;
            let waits = state.waits.entry(stream.0).or_default();
            *waits += 1;
            let is_left_out = state.dropped == Some((stream.0, *waits - 1));
            if is_left_out {
                state.avoided = state.recorded_on.get(&event.0).copied();
            }
            Ok((time, is_left_out))
        })?;
        if is_left_out {
            return Ok(());
        }
        self.submit(stream, Work::WaitFor { event: event.0, time })
    }

    fn is_reached(&self, event: EventHandle) -> Result<bool, DriverError> {
        self.with(|state| {
            state.run_until(|state| state.events.get(&event.0).is_none_or(|(last, reached)| reached == last))
        })
        .map(|()| true)
    }

    fn elapsed_ms(&self, _: EventHandle, _: EventHandle) -> Result<f32, DriverError> {
        Ok(0.0)
    }

    fn load(&self, _: ModuleImage) -> Result<ModuleHandle, DriverError> {
        Ok(ModuleHandle(0))
    }

    fn unload(&self, _: ModuleHandle) -> Result<(), DriverError> {
        Ok(())
    }

    fn function(&self, _: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError> {
        self.with(|state| {
            let handle = state.new_handle();
            state.functions.insert(handle, name.into());
            Ok(FunctionHandle(handle))
        })
    }

    fn function_facts(&self, _: FunctionHandle) -> Result<FunctionFacts, DriverError> {
        Ok(FunctionFacts { registers: 0, shared_bytes: 0, local_bytes: 0, max_threads_per_block: 1024 })
    }

    fn allow_shared(&self, _: FunctionHandle, _: u32) -> Result<(), DriverError> {
        Ok(())
    }

    fn tensor_map(&self, _: &TensorTiles) -> Result<TensorMap, DriverError> {
        self.with(|_| Err("nothing here copies boxes"))
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        _: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let name =
            self.with(|state| state.functions.get(&function.0).cloned().ok_or("a handle that does not exist"))?;
        self.submit(stream, Work::Kernel { name, arguments: arguments.values().to_vec() })
    }

    fn begin_capture(&self, _: StreamHandle) -> Result<(), DriverError> {
        self.with(|_| Err("nothing here captures"))
    }

    fn end_capture(&self, _: StreamHandle) -> Result<GraphHandle, DriverError> {
        self.with(|_| Err("nothing here captures"))
    }

    fn create_graph(&self, _: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        self.with(|_| Err("nothing here has graphs"))
    }

    fn set_node(&self, _: GraphHandle, _: usize, _: &KernelNode<'_>) -> Result<(), DriverError> {
        self.with(|_| Err("nothing here has graphs"))
    }

    fn launch_graph(&self, _: StreamHandle, _: GraphHandle) -> Result<(), DriverError> {
        self.with(|_| Err("nothing here captures"))
    }

    fn destroy_graph(&self, _: GraphHandle) -> Result<(), DriverError> {
        self.with(|_| Err("nothing here captures"))
    }
}
