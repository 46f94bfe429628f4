//! NCCL in software refuses what hangs on hardware: launches at the same time and contradicting orders. It takes memory
//! when a communicator connects, and hardware queues hold up what follows a wait.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpu::{DevicePointer, Driver, Gpu, StreamHandle};
use nvidia::nccl::{CollectiveError, Communicator, Element, Library, Progress};
use nvidia::{Search, driver};

use crate::tests::soft_library::folder;

/// A rank on a GPU of its own, in two groups of the same ranks.
struct Rank {
    gpu: Arc<dyn Gpu>,
    library: Arc<Library>,
    groups: [Communicator; 2],
    streams: [StreamHandle; 2],
}

/// Does `rank` for each of two ranks, which have met in both groups.
fn on_ranks<T: Send>(name: &str, settings: &str, rank: impl Fn(usize, &Rank, &Barrier) -> T + Sync) -> Vec<T> {
    let folder = folder(name, &format!("gpus = 2\n{settings}"), &["libcuda.so.1", "libnccl.so.2"]);
    let search = Search::only([folder.clone()]);
    let driver = driver::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    let library = Arc::new(Library::open(&search).unwrap_or_else(|error| panic!("{error}")));
    // Settings are read with the first GPU.
    let gpus = [0, 1].map(|ordinal| driver.open(ordinal).expect("a GPU"));
    std::fs::remove_dir_all(&folder).expect("removed");
    let ids = [(); 2].map(|()| library.group_id().expect("a name"));
    let both = Barrier::new(2);
    let (gpus, library, both, rank) = (&gpus, &library, &both, &rank);
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|number| {
            scope.spawn(move || {
                let gpu = Arc::clone(&gpus[number]);
                let streams = [(); 2].map(|()| gpu.create_stream().expect("a stream"));
                let groups = ids.map(|id| {
                    let group = Communicator::begin(Arc::clone(library), &*gpu, id, 2, number).expect("begun");
                    settle(&group).expect("met");
                    group
                });
                let own = Rank { gpu, library: Arc::clone(library), groups, streams };
                both.wait();
                let result = rank(number, &own, both);
                both.wait();
                own.library.abort(own.groups.iter()).expect("ended");
                result
            })
        });
        threads.map(|thread| thread.join().expect("no panic")).into()
    })
}

/// Waits until a call is launched, or fails.
fn settle(group: &Communicator) -> Result<(), CollectiveError> {
    while group.poll()? == Progress::Continues {
        std::thread::yield_now();
    }
    Ok(())
}

impl Rank {
    /// A number that is zero, on the stream of a group.
    fn zero(&self, group: usize) -> DevicePointer {
        let memory = self.gpu.allocate(4).expect("memory");
        self.gpu.fill(self.streams[group], memory, 0, 4).expect("zeros");
        memory
    }

    /// Sums a number of each rank in one of the groups.
    fn sum(&self, group: usize) -> Result<Progress, CollectiveError> {
        self.sum_of(group, self.zero(group))
    }

    fn sum_of(&self, group: usize, memory: DevicePointer) -> Result<Progress, CollectiveError> {
        self.groups[group].all_reduce((memory, memory), (1, Element::F32), self.streams[group])
    }

    /// Waits until a group reports a failure.
    fn failure(&self, group: usize) -> String {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            match self.groups[group].poll() {
                Ok(_) => std::thread::yield_now(),
                Err(error) => return error.text,
            }
        }
        "none".into()
    }
}

#[test]
fn a_call_while_another_one_is_launched_is_refused() {
    let heard = on_ranks("overlap", "", |number, rank, _| {
        if number == 0 {
            // In 1,000 pairs at least one time is long enough; neither is waited for.
            let [one, other] = [rank.zero(0), rank.zero(1)];
            for _ in 0..1000 {
                let (first, second) = (rank.sum_of(0, one), rank.sum_of(1, other));
                assert!(first.is_ok(), "{first:?}");
                if let Err(error) = second {
                    return error.text;
                }
                settle(&rank.groups[0]).and_then(|()| settle(&rank.groups[1])).expect("launched");
            }
        }
        rank.failure(1)
    });
    assert_eq!(heard, ["invalid usage"; 2]);
}

#[test]
fn contradicting_orders_of_two_communicators_are_refused() {
    let heard = on_ranks("orders", "", |number, rank, _| {
        for group in if number == 0 { [0, 1] } else { [1, 0] } {
            // The second call may hear of it already.
            let Ok(_) = rank.sum(group) else { break };
            let _ = settle(&rank.groups[group]);
        }
        for stream in rank.streams {
            // Streams continue once it is found.
            let _ = rank.gpu.synchronize(stream);
        }
        let refused = [0, 1].map(|group| rank.groups[group].poll());
        refused.iter().any(|outcome| outcome.as_ref().is_err_and(|error| error.text == "invalid usage"))
    });
    assert_eq!(heard, [true; 2]);
}

#[test]
fn a_communicator_ends_in_a_group_of_calls_while_another_one_has_calls_under_way() {
    let outcomes = on_ranks("ends", "", |number, rank, both| {
        if number == 0 {
            // The other rank does not come to it.
            rank.sum(0).expect("launched");
            settle(&rank.groups[0]).expect("launched");
            assert_eq!(rank.library.abort(std::iter::once(&rank.groups[1])), Ok(()));
        }
        both.wait();
        rank.library.abort(rank.groups.iter())
    });
    assert_eq!(outcomes, [Ok(()), Ok(())]);
}

#[test]
fn memory_is_taken_when_a_communicator_connects() {
    let taken = on_ranks("memory", "memory_bytes = 100000000\n", |_, rank, _| {
        let free = || rank.gpu.free_memory().expect("known").free_bytes;
        let before = free();
        rank.sum(0).expect("launched");
        settle(&rank.groups[0]).expect("launched");
        rank.gpu.synchronize(rank.streams[0]).expect("summed");
        let first = before - free();
        let memory = rank.gpu.allocate(free() as usize - (16 << 20)).expect("the rest");
        rank.sum(1).expect("begun");
        let refused = settle(&rank.groups[1]).expect_err("no memory for the second group");
        rank.gpu.free(memory).expect("freed");
        (first >= 20 << 20, refused.text)
    });
    assert_eq!(taken, vec![(true, "unhandled cuda error".to_owned()); 2]);
}

/// Both ranks send to each other over a group for each direction, and then wait for what comes: the send is late.
fn exchange(queues: usize) -> Vec<bool> {
    let settings = format!("hardware_queues = {queues}\n");
    on_ranks(&format!("queues-{queues}"), &settings, |number, rank, _| {
        let memory = [(); 2].map(|()| rank.gpu.allocate(4).expect("memory"));
        let [receives, sends] = [&rank.groups[1 - number], &rank.groups[number]];
        let [receiving, sending] = rank.streams;
        rank.gpu.fill(sending, memory[0], 1, 4).expect("filled");
        let amount = (4, Element::Bytes);
        let received = receives.together(|messages| messages.receive(memory[1], amount, 1 - number, receiving));
        received.and_then(|_| settle(receives)).expect("launched");
        // The next work of the receiving stream cannot begin before the message has come.
        rank.gpu.fill(receiving, memory[1], 2, 4).expect("filled");
        let sent = sends.together(|messages| messages.send(memory[0], amount, 1 - number, sending));
        sent.and_then(|_| settle(sends)).expect("launched");
        let waited = Instant::now();
        while waited.elapsed() < Duration::from_millis(300) {
            if rank.gpu.has_ended(receiving).expect("no failure") && rank.gpu.has_ended(sending).expect("no failure") {
                return true;
            }
            std::thread::yield_now();
        }
        false
    })
}

#[test]
fn work_after_a_wait_in_the_same_hardware_queue_does_not_begin() {
    assert_eq!(exchange(1), [false; 2], "each send follows a wait for the other one");
    assert_eq!(exchange(2), [true; 2]);
}
