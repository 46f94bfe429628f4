//! Groups over NCCL in software, each rank with a GPU in software of its own: bits of the host, and failures that are
//! named within the deadline. They need NVRTC in the folder of PLEACH_CUDA.

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use comm::{AbortCause, Channel, Timeouts};
use cuda::{CompiledSource, CudaDevice};
use device::{Communicator, Device, DeviceError, Dtype, Reduction, Stream, SumTree, Tensor};
use gpu::{Driver, Gpu};
use gpu_rank::{
    COLLECTIVES, NcclCommunicator, NcclGroup, NcclGroups, NcclRank, Neighbours, PeerKernels, QueueOrder, RankDevice,
    RankStreams,
};
use mesh::Rank;
use nvidia::Search;

use crate::collectives::kernels::{compiled, compiler};
use crate::collectives::{Call, RankTransports, calls, expected, issue, on_ranks, on_ranks_within, place, values};

/// A GPU of its own, with NCCL: a copy of the library, of which the loader makes another instance.
pub(super) struct Copied {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) nccl: Arc<nvidia::nccl::Library>,
}

pub(super) fn copied(name: &str, rank: usize, settings: &str) -> Copied {
    let program = std::env::current_exe().expect("a program");
    let shared = program.parent().expect("the folder of the program").join("libsoftgpu_driver.so");
    let folder = std::env::temp_dir().join(format!("pleach-nccl-{name}-{rank}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(shared, folder.join("libcuda.so.1")).expect("a copy");
    std::fs::hard_link(folder.join("libcuda.so.1"), folder.join("libnccl.so.2")).expect("another name");
    std::fs::write(folder.join("softgpu.settings"), settings).expect("written");
    let search = Search::only([PathBuf::from(&folder)]);
    let driver = nvidia::driver::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    let nccl = nvidia::nccl::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    // Settings are read with the first GPU.
    let gpu = driver.open(0).expect("a GPU");
    std::fs::remove_dir_all(&folder).expect("removed");
    Copied { gpu, nccl: Arc::new(nccl) }
}

/// A rank of a group over NCCL.
pub(super) struct Member {
    pub(super) group: NcclCommunicator,
    nccl: Arc<NcclRank>,
    pub(super) rank: RankDevice,
}

const BYTES: usize = 1 << 18;

/// A rank that has met the others, with streams in `order` and a GPU of these settings.
fn member(
    (name, settings): (&str, &str),
    code: &CompiledSource,
    transports_of_rank: &RankTransports,
    timeouts: Timeouts,
    order: QueueOrder,
) -> Member {
    let copied = copied(name, transports_of_rank.group.rank().0, settings);
    member_on(copied, code, transports_of_rank, timeouts, order)
}

/// The same on a GPU that is opened.
pub(super) fn member_on(
    copied: Copied,
    code: &CompiledSource,
    transports_of_rank: &RankTransports,
    timeouts: Timeouts,
    order: QueueOrder,
) -> Member {
    let transport = &transports_of_rank.transports[Stream::Compute.index()];
    let (group, channels) = (transports_of_rank.group.clone(), RankTransports::channels());
    let groups = [NcclGroup { group: group.clone(), channels, neighbours: Neighbours::Send }];
    let supervised = (Arc::clone(transport), timeouts);
    let met = NcclGroups::meet(&copied.nccl, &copied.gpu, supervised, &groups).expect("met");
    let device = Arc::new(CudaDevice::open(Arc::clone(&copied.gpu), &[], BYTES).expect("a device"));
    let streams = RankStreams { device, order };
    let kernels = Arc::new(PeerKernels::load(&*copied.gpu, code).expect("loaded"));
    let nccl = Arc::new(NcclRank::new(met, streams.clone(), kernels));
    let rank = RankDevice::new(streams, Arc::clone(&transports_of_rank.queues)).with_nccl(Arc::clone(&nccl));
    Member { group: NcclCommunicator::new(group, (transport, channels), Arc::clone(&nccl)), rank, nccl }
}

/// The failure of each rank.
fn failures(
    timeouts: Timeouts,
    name: &str,
    body: impl Fn(&Member, &RankTransports) -> Result<(), DeviceError> + Sync,
) -> Vec<String> {
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    let opened = Barrier::new(3);
    on_ranks_within(timeouts, 3, &[], |transports_of_rank| {
        let own = member((name, ""), &code, transports_of_rank, timeouts, QueueOrder::One);
        opened.wait();
        let failed = body(&own, transports_of_rank).and_then(|()| own.rank.synchronize()).err();
        let text = failed.map_or(String::new(), |error| error.to_string());
        if !text.is_empty() {
            let cause = AbortCause { rank: transports_of_rank.group.rank(), description: text.clone() };
            transports_of_rank.transports[Stream::Compute.index()].abort(cause);
        }
        text
    })
}

fn all_reduce(own: &Member, len: usize) -> Result<(), DeviceError> {
    own.group.all_reduce(Stream::Compute, Tensor::new(0, 1, len, Dtype::F32), Reduction::Sum(SumTree::RANK_ORDER))
}

#[needs::cuda]
#[test]
fn groups_over_nccl_have_the_bits_of_the_host_in_any_order_of_completion() {
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    for (members, order) in [(2, QueueOrder::One), (3, QueueOrder::PerStream), (4, QueueOrder::One)] {
        let submitted = Barrier::new(members);
        let stream = match order {
            QueueOrder::One => Stream::Compute,
            QueueOrder::PerStream => Stream::Reduce,
        };
        let done = on_ranks(members, &[], |transports_of_rank| {
            let timeouts = Timeouts::new(Duration::from_secs(60));
            let own = member((&format!("bits-{members}"), ""), &code, transports_of_rank, timeouts, order);
            let write = |(number, (call, dtype, len)): (usize, (Call, Dtype, usize))| {
                let places = place(number, call, dtype, len);
                own.rank
                    .upload(stream, places[0], &values(transports_of_rank.group.rank().0, number, dtype, len))
                    .expect("uploaded");
                let result = issue(&own.group, stream, call, places);
                own.rank.wait(Stream::Compute, own.rank.record(stream)).expect("waited");
                let mut bytes = vec![0; result.size_bytes()];
                own.rank.read(result, &mut bytes).expect("read");
                bytes
            };
            let results: Vec<Vec<u8>> = calls().into_iter().enumerate().map(write).collect();
            submitted.wait();
            results
        });
        assert_eq!(done, expected(members), "{members} members");
    }
}

#[needs::cuda]
#[test]
fn messages_may_be_received_in_another_order_than_they_were_sent() {
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    let timeouts = Timeouts::new(Duration::from_secs(60));
    let read = on_ranks(2, &[], |transports_of_rank| {
        let own = member(("order", ""), &code, transports_of_rank, timeouts, QueueOrder::One);
        let (position, at) =
            (transports_of_rank.group.position(), |index: usize| Tensor::new(64 * index, 1, 8, Dtype::F32));
        let mut all = vec![];
        for round in 0..2u64 {
            // Both send first, and neither waits for the other. Lent memory is not written again.
            for tag in 0..3 {
                let place = at(tag + 10 * round as usize);
                let bytes = [10 * position as u8 + tag as u8 + 100 * round as u8; 32];
                own.rank.upload(Stream::Compute, place, &bytes).expect("uploaded");
                own.group.send(Stream::Compute, 1 - position, tag as u64 + 3 * round, place).expect("sent");
            }
            for tag in [2, 0, 1] {
                own.group
                    .receive(Stream::Compute, 1 - position, tag as u64 + 3 * round, at(4 + tag))
                    .expect("received");
                let mut bytes = [0; 32];
                own.rank.read(at(4 + tag), &mut bytes).expect("read");
                all.push(bytes[31]);
            }
        }
        all
    });
    assert_eq!(read, [[12, 10, 11, 112, 110, 111], [2, 0, 1, 102, 100, 101]]);
}

#[needs::cuda]
#[test]
fn calls_that_differ_are_named_before_nccl_has_them() {
    let said = failures(Timeouts::new(Duration::from_secs(60)), "differ", |own, transports_of_rank| {
        all_reduce(own, 8)?;
        match transports_of_rank.group.position() {
            1 => own.group.all_gather(Stream::Compute, Tensor::new(0, 1, 24, Dtype::F32)),
            _ => all_reduce(own, 8),
        }
    });
    let named = ["rank 1 is in all-gather of 96 bytes", "but rank 1 is in all-gather of 96 bytes"];
    assert!(said.is_empty() || said.iter().any(|text| named.iter().any(|named| text.contains(named))), "{said:?}");
    assert!(said.iter().all(|text| !text.is_empty()), "{said:?}");
}

#[needs::cuda]
#[test]
fn a_rank_that_does_not_come_is_named_within_the_deadline() {
    let said = failures(SHORT, "late", |own, transports_of_rank| {
        all_reduce(own, 8)?;
        // Each rank waits for its predecessor: were rank 0 in the call as well, it could name rank 2 on a busy machine.
        if transports_of_rank.group.position() == 2 {
            return all_reduce(own, 8).and_then(|()| own.nccl.check());
        }
        until_a_failure(transports_of_rank);
        Ok(())
    });
    let is_named = |text: &String| text.contains("rank 2 waited ") && text.contains("for rank 1 in all-reduce");
    assert!(said.is_empty() || is_named(&said[2]), "{said:?}");
}

/// A deadline that ranks keep on a busy machine, and that a test can wait for.
const SHORT: Timeouts = Timeouts::new(Duration::from_secs(2));

/// Returns when another rank of the world has failed.
fn until_a_failure(transports_of_rank: &RankTransports) {
    while transports_of_rank.transports[0].failure().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells rank 2 that the previous member has come to its second call, an all-reduce of 32 bytes, without giving it to
/// NCCL.
fn announce_to_rank_2(transports_of_rank: &RankTransports) {
    let calls = Channel::new(
        Arc::clone(&transports_of_rank.transports[0]),
        transports_of_rank.group.clone(),
        RankTransports::channels().collectives,
    );
    calls.post_send(2, 1, &[0u64, 32]).expect("sent");
}

#[needs::cuda]
#[test]
fn a_gpu_that_does_not_come_and_a_rank_that_is_lost_let_the_others_continue() {
    // Rank 1 says that it is in the call, and does not give it to NCCL.
    let stuck = |own: &Member, transports_of_rank: &RankTransports| {
        all_reduce(own, 8)?;
        own.rank.synchronize()?;
        if transports_of_rank.group.position() != 1 {
            return all_reduce(own, 8);
        }
        announce_to_rank_2(transports_of_rank);
        until_a_failure(transports_of_rank);
        Ok(())
    };
    let said = failures(SHORT, "stuck", stuck);
    let late = "for NCCL in all-reduce of ranks 0, 1 and 2, which have begun it";
    assert!(said.is_empty() || [0, 2].iter().any(|rank| said[*rank].contains(late)), "{said:?}");
    // The same rank is lost, which the world hears while the others wait for their GPUs.
    let lost = |own: &Member, transports_of_rank: &RankTransports| {
        all_reduce(own, 8)?;
        own.rank.synchronize()?;
        if transports_of_rank.group.position() != 1 {
            return all_reduce(own, 8);
        }
        announce_to_rank_2(transports_of_rank);
        std::thread::sleep(Duration::from_millis(50));
        transports_of_rank.transports[0]
            .abort(AbortCause { rank: Rank(1), description: "its process was killed".into() });
        Ok(())
    };
    let said = failures(Timeouts::new(Duration::from_secs(60)), "lost", lost);
    let named = |rank: usize| said[rank].contains("because rank 1 failed: its process was killed");
    assert!(said.is_empty() || named(0) && named(2), "{said:?}");
}

/// The byte that each of two stages of a pipeline receives in the last of these rounds, in which it sends to the other
/// one and waits for the message that comes: the steady state of 1F1B.
fn exchanged(code: &CompiledSource, rounds: u64, settings: &str, name: &str) -> Vec<u8> {
    let timeouts = Timeouts::new(Duration::from_secs(10));
    on_ranks_within(timeouts, 2, &[], |transports_of_rank| {
        let own = member((name, settings), code, transports_of_rank, timeouts, QueueOrder::PerStream);
        let position = transports_of_rank.group.position();
        let at = |index: usize| Tensor::new(64 * index, 1, 8, Dtype::F32);
        // Lent memory is not written again.
        let (out, into) = (|round: u64| at(8 + round as usize), at(4));
        let round = |round: u64| {
            own.rank.upload(Stream::Compute, out(round), &[position as u8 + 2 * round as u8; 32])?;
            own.rank.wait(Stream::Transfer, own.rank.record(Stream::Compute))?;
            own.group.send(Stream::Transfer, 1 - position, round, out(round))?;
            own.group.receive(Stream::Transfer, 1 - position, round, into)?;
            own.rank.wait(Stream::Compute, own.rank.record(Stream::Transfer))
        };
        let mut bytes = [0; 32];
        let read = (0..rounds).try_for_each(round).and_then(|()| own.rank.read(into, &mut bytes));
        if let Err(error) = read {
            let cause = AbortCause { rank: transports_of_rank.group.rank(), description: error.to_string() };
            transports_of_rank.transports[0].abort(cause);
            panic!("{settings}: rank {position}: {error}");
        }
        bytes[0]
    })
}

#[needs::cuda]
#[test]
fn stages_exchange_whatever_the_hardware_queues() {
    const ROUNDS: u64 = 4;
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    let repeats = if needs::all_cases!() { 50 } else { 2 };
    for (queues, deal) in [(1, "at creation"), (8, "at creation"), (8, "at first work"), (32, "at creation")] {
        for repeat in 0..repeats {
            let settings = format!("hardware_queues = {queues}\ndeal = {deal}\n");
            let name = format!("stages-{queues}-{}-{repeat}", deal.len());
            let last = 2 * (ROUNDS as u8 - 1);
            assert_eq!(exchanged(&code, ROUNDS, &settings, &name), [1 + last, last], "{settings}");
        }
    }
}
