//! Communicators of GPUs against the host's. Those of one GPU run on a GPU that does everything as late as it may: the
//! same bits for every type, tree and length, while each rank overwrites its tensors as soon as a call has returned.
//! Without any one of the waits between ranks some order of streams gives other bits.

mod kernels;
mod late_gpu;
#[allow(dead_code, reason = "tests of operations use the kinds of faults")]
#[path = "../../../cuda/tests/operations/mutants.rs"]
mod mutants;
mod mutations;
mod nccl;
mod urgent_streams;

use std::num::NonZeroUsize;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use comm::{
    ChannelId, GroupChannels, HostCommunicator, HostMap, StreamTransports, ThreadTransport, Timeouts, Transport,
};
use cpu::CpuDevice;
use cuda::{CompiledSource, CudaDevice};
use device::{Arena, Communicator, Device, Dtype, OnFailure, Reduction, Stream, StreamQueues, SumTree, Tensor};
use gpu::Gpu;
use gpu_rank::{
    COLLECTIVES, EventKeeper, PeerCommunicator, PeerKernels, PeerLanes, QueueOrder, RankDevice, RankStreams,
    StagedCommunicator, Staging,
};
use late_gpu::LateGpu;
use mesh::{Axis, AxisSet, AxisSizes, Group, Mesh, Rank};
use nvidia::nvrtc::Code;

/// One call on every rank.
#[derive(Clone, Copy, Debug)]
enum Call {
    AllReduce(Reduction),
    ReduceScatter(SumTree),
    AllGather,
    AllToAll,
    Shift,
    /// To the next member, under this tag.
    Ring(u64),
}

const BYTES: usize = 1 << 17;
/// A call's result is kept in a place of its own, of this size.
const KEPT_BYTES: usize = 2048;

fn tree(run: usize) -> SumTree {
    SumTree::of_runs(NonZeroUsize::new(run).expect("not 0"))
}

/// Calls with the type and the length of their tensors; lengths divide by 2 and 3 where slices must be equal.
fn calls() -> Vec<(Call, Dtype, usize)> {
    let rank_order = SumTree::RANK_ORDER;
    vec![
        (Call::AllReduce(Reduction::Sum(rank_order)), Dtype::F32, 97),
        (Call::AllGather, Dtype::F32, 60),
        (Call::AllReduce(Reduction::Sum(tree(2))), Dtype::F32, 100),
        (Call::Ring(7), Dtype::F32, 33),
        (Call::ReduceScatter(rank_order), Dtype::Bf16, 120),
        (Call::AllReduce(Reduction::Sum(rank_order)), Dtype::F16, 5),
        (Call::AllReduce(Reduction::Max), Dtype::F32, 41),
        (Call::ReduceScatter(tree(2)), Dtype::I64, 36),
        (Call::Ring(8), Dtype::I64, 8),
        (Call::AllReduce(Reduction::Sum(rank_order)), Dtype::I64, 8),
        (Call::AllReduce(Reduction::Sum(rank_order)), Dtype::Bf16, 64),
        (Call::ReduceScatter(tree(2)), Dtype::F32, 120),
        (Call::AllGather, Dtype::Bf16, 12),
        (Call::AllGather, Dtype::F16, 12),
        (Call::AllToAll, Dtype::F32, 60),
        (Call::AllToAll, Dtype::Bf16, 36),
        (Call::Shift, Dtype::F32, 34),
    ]
}

/// The tensor of call `number`. Collectives share a place; what is sent and received has its own.
fn place(number: usize, call: Call, dtype: Dtype, len: usize) -> [Tensor; 2] {
    let own = match call {
        Call::AllReduce(_) | Call::ReduceScatter(_) | Call::AllGather | Call::AllToAll | Call::Shift => 0,
        Call::Ring(_) => (1 + number) * KEPT_BYTES,
    };
    [Tensor::new(own, 1, len, dtype), Tensor::new((20 + number) * KEPT_BYTES, 1, len, dtype)]
}

/// The values that `rank` puts into the tensor of call `number`.
fn values(rank: usize, number: usize, dtype: Dtype, len: usize) -> Vec<u8> {
    let value = |index: usize| {
        let seed = (rank * 7919 + number * 104_729 + index * 1_299_709) as u32;
        let mixed = (seed ^ seed >> 7).wrapping_mul(0x9e37_79b1) >> 15;
        mixed as f32 / 1311.0 - 50.0
    };
    match dtype {
        Dtype::F32 => (0..len).flat_map(|index| value(index).to_le_bytes()).collect(),
        Dtype::I64 => (0..len).flat_map(|index| ((value(index) * 1e6) as i64).to_le_bytes()).collect(),
        Dtype::Bf16 => {
            (0..len).flat_map(|index| <device::Bf16 as device::Element>::narrow(value(index)).0.to_le_bytes()).collect()
        }
        Dtype::F16 => {
            (0..len).flat_map(|index| <device::F16 as device::Element>::narrow(value(index)).0.to_le_bytes()).collect()
        }
        Dtype::I32 => panic!("nobody joins tokens"),
    }
}

/// A member's part of a world of threads.
struct RankTransports {
    group: Group,
    transports: StreamTransports,
    queues: Arc<StreamQueues>,
}

impl RankTransports {
    fn channels() -> GroupChannels {
        let channel = |usage| ChannelId::new(AxisSet::of(Axis::Tp), usage);
        GroupChannels { collectives: channel(0), sends: channel(1) }
    }

    fn host(&self, arena: &Arc<Arena>, queues: Arc<StreamQueues>) -> HostCommunicator {
        let hosts = HostMap::one_host();
        HostCommunicator::new(
            &self.transports,
            self.group.clone(),
            &hosts,
            RankTransports::channels(),
            arena,
            queues,
            &|_| None,
        )
    }
}

/// Does `rank` on a thread for each of `members` ranks, with `queued` streams that have threads; the results by rank.
fn on_ranks<T: Send>(members: usize, queued: &[Stream], rank: impl Fn(&RankTransports) -> T + Sync) -> Vec<T> {
    on_ranks_within(Timeouts::new(Duration::from_secs(60)), members, queued, rank)
}

/// The same with other deadlines.
fn on_ranks_within<T: Send>(
    timeouts: Timeouts,
    members: usize,
    queued: &[Stream],
    rank: impl Fn(&RankTransports) -> T + Sync,
) -> Vec<T> {
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(1, members, 1)).expect("a mesh");
    let lanes: Vec<Vec<Arc<dyn Transport>>> = ThreadTransport::lanes(members, 1 + queued.len(), timeouts)
        .into_iter()
        .map(|lane| lane.into_iter().map(|end| Arc::new(end) as Arc<dyn Transport>).collect())
        .collect();
    let lane_of = |stream: Stream| queued.iter().position(|other| *other == stream).map_or(0, |index| 1 + index);
    let transports_of_rank = |number: usize| {
        let on_failure: OnFailure = Arc::new(|stream, error| panic!("{stream:?}: {error}"));
        let queues = Arc::new(StreamQueues::start(queued, "rank", &on_failure).expect("threads"));
        let transports = Stream::ALL.map(|stream| Arc::clone(&lanes[lane_of(stream)][number]));
        RankTransports { group: mesh.group(Rank(number), Axis::Tp), transports, queues }
    };
    let rank = &rank;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..members)
            .map(transports_of_rank)
            .map(|transports_of_rank| scope.spawn(move || rank(&transports_of_rank)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn issue(group: &dyn Communicator, stream: Stream, call: Call, [own, received]: [Tensor; 2]) -> Tensor {
    let (size, position) = (group.size(), group.position());
    let issued = match call {
        Call::AllReduce(reduction) => group.all_reduce(stream, own, reduction),
        Call::ReduceScatter(tree) => group.reduce_scatter(stream, own, tree),
        Call::AllGather => group.all_gather(stream, own),
        Call::AllToAll => group.all_to_all(stream, own, received),
        Call::Shift => group.shift(stream, own, received),
        Call::Ring(tag) => group
            .send(stream, (position + 1) % size, tag, own)
            .and_then(|()| group.receive(stream, (position + size - 1) % size, tag, received)),
    };
    issued.expect("issued");
    let slice = |x: Tensor| x.elements(x.len() / size * position..x.len() / size * (position + 1));
    match call {
        Call::AllReduce(_) | Call::AllGather => own,
        // The other slices are unspecified.
        Call::ReduceScatter(_) => slice(own),
        Call::AllToAll | Call::Shift | Call::Ring(_) => received,
    }
}

/// The results of all calls on each rank, by the host's communicator.
fn expected(members: usize) -> Vec<Vec<Vec<u8>>> {
    on_ranks(members, &[], |transports_of_rank| {
        let arena = Arc::new(Arena::new(BYTES).expect("an arena"));
        let group = transports_of_rank.host(&arena, Arc::clone(&transports_of_rank.queues));
        let device = CpuDevice::new(arena).expect("memory");
        let results = calls().into_iter().enumerate().map(|(number, (call, dtype, len))| {
            let places = place(number, call, dtype, len);
            device.write(places[0], &values(transports_of_rank.group.rank().0, number, dtype, len)).expect("written");
            let result = issue(&group, Stream::Compute, call, places);
            let mut bytes = vec![0; result.size_bytes()];
            device.read(result, &mut bytes).expect("read");
            bytes
        });
        results.collect()
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Staged,
    Peers,
}

/// A device for each rank.
fn devices(members: usize, gpu: &Arc<dyn Gpu>) -> Vec<Arc<CudaDevice>> {
    let device = |_| Arc::new(CudaDevice::open(Arc::clone(gpu), &[], 2 * BYTES).expect("a device"));
    (0..members).map(device).collect()
}

/// Kernels of the late GPU, which needs no code.
fn no_code() -> CompiledSource {
    CompiledSource { source: COLLECTIVES, code: Code::Ptx(String::new()) }
}

/// The same on the devices of one GPU with these kernels, every call on `stream`.
fn on_gpu(
    devices: &[Arc<CudaDevice>],
    kernels: &CompiledSource,
    kind: Kind,
    (stream, queued): (Stream, &[Stream]),
) -> Vec<Vec<Vec<u8>>> {
    let gpu = devices[0].gpu();
    let kernels = Arc::new(PeerKernels::load(&**gpu, kernels).expect("loaded"));
    let submitted = Barrier::new(devices.len());
    let events: Vec<_> = devices.iter().map(|_| Arc::new(EventKeeper::new(Arc::clone(gpu)))).collect();
    on_ranks(devices.len(), queued, |transports_of_rank| {
        let device = Arc::clone(&devices[transports_of_rank.group.rank().0]);
        let order = if queued.is_empty() { QueueOrder::One } else { QueueOrder::PerStream };
        let streams = RankStreams { device: Arc::clone(&device), order };
        let group: Box<dyn Communicator> = match kind {
            Kind::Staged => {
                let staging = Arc::new(Staging::new(streams.clone()).expect("a mirror"));
                let host = transports_of_rank.host(staging.mirror(), Arc::default());
                Box::new(StagedCommunicator::new(host, staging, Arc::clone(&transports_of_rank.queues)))
            }
            Kind::Peers => Box::new(PeerCommunicator::new(
                transports_of_rank.group.clone(),
                PeerLanes {
                    transports: &transports_of_rank.transports,
                    channels: RankTransports::channels(),
                    queues: Arc::clone(&transports_of_rank.queues),
                    streams: streams.clone(),
                    kernels: Arc::clone(&kernels),
                    events: Arc::clone(&events[transports_of_rank.group.rank().0]),
                },
            )),
        };
        let rank = RankDevice::new(streams, Arc::clone(&transports_of_rank.queues));
        let kept = |number: usize| BYTES + number * KEPT_BYTES;
        let mut results = vec![];
        // The place of collectives, as soon as a call has returned.
        let overwrite = || {
            let place = Tensor::new(0, 1, KEPT_BYTES / 4, Dtype::I32);
            rank.upload(stream, place, &[0xff; KEPT_BYTES]).expect("uploaded");
        };
        for (number, (call, dtype, len)) in calls().into_iter().enumerate() {
            let places = place(number, call, dtype, len);
            overwrite();
            rank.upload(stream, places[0], &values(transports_of_rank.group.rank().0, number, dtype, len))
                .expect("uploaded");
            let result = issue(&*group, stream, call, places);
            // Kept by work of another stream, which waits for this one; then the place is overwritten at once.
            let to = Tensor { offset_bytes: kept(number), ..result };
            let other = Stream::Compute;
            rank.wait(other, rank.record(stream)).expect("waited");
            let handle = device.hand_over(order.stream(other)).expect("a stream");
            let [from, into] = [result, to].map(|x| device.arena().offset(x.offset_bytes));
            gpu.copy(handle, into, from, result.size_bytes()).expect("copied");
            rank.wait(stream, rank.record(other)).expect("waited");
            results.push(to);
        }
        overwrite();
        // Whoever reads runs what has been submitted: all of it, on every rank.
        submitted.wait();
        let read = |x: Tensor| {
            let mut bytes = vec![0; x.size_bytes()];
            rank.read(x, &mut bytes).expect("read");
            bytes
        };
        let results = results.into_iter().map(read).collect();
        // The others may still read this rank's memory.
        group
            .all_reduce(Stream::Compute, Tensor::new(0, 1, 8, Dtype::I64), Reduction::Sum(SumTree::RANK_ORDER))
            .expect("met");
        rank.synchronize().expect("ended");
        results
    })
}

#[test]
fn both_communicators_have_the_bits_of_the_host() {
    for members in [2, 3, 4, 6] {
        let expected = expected(members);
        for kind in [Kind::Staged, Kind::Peers] {
            for seed in 1..=4 {
                let gpu: Arc<dyn Gpu> = Arc::new(LateGpu::new(seed));
                let done = on_gpu(&devices(members, &gpu), &no_code(), kind, (Stream::Compute, &[]));
                assert_eq!(done, expected, "{members} {kind:?} {seed}");
                let gpu: Arc<dyn Gpu> = Arc::new(LateGpu::new(seed));
                let queued = [Stream::Reduce, Stream::Transfer];
                let done = on_gpu(&devices(members, &gpu), &no_code(), kind, (Stream::Reduce, &queued));
                assert_eq!(done, expected, "{members} {kind:?} {seed}");
            }
        }
    }
}

#[test]
fn without_a_wait_between_ranks_some_order_gives_other_bits() {
    let members = 3;
    let expected = expected(members);
    // Rank 1 leaves out a wait, and does what it does as early as it can; the number of its waits is returned.
    let run = |left_out: Option<usize>| {
        let late = Arc::new(LateGpu::new(1));
        let devices = devices(members, &(Arc::clone(&late) as Arc<dyn Gpu>));
        let stream = devices[1].stream(Stream::Compute);
        if let Some(wait) = left_out {
            late.leave_out(stream, wait);
        }
        let is_right = on_gpu(&devices, &no_code(), Kind::Peers, (Stream::Compute, &[])) == expected;
        (is_right && !late.has_faulted(), late.waits(stream))
    };
    let (is_right, waits) = run(None);
    assert!(is_right, "nothing is left out");
    // Those of the last meeting of all order nothing that is overwritten.
    let waits = waits - 3 * (members - 1);
    let missed: Vec<usize> = (0..waits).filter(|wait| run(Some(*wait)).0).collect();
    assert_eq!(missed, [0; 0], "of {waits} waits");
}
