//! Bytes between the ranks that divide experts: those of the formula in `docs/run-file.md`, from the choices of a run.

use std::sync::{Arc, Mutex};

use comm::{Counting, Counts, HostMap, Transport};
use config::{ExpertsSpec, ModelSpec, Parallelism, Recompute, ZeroStage};
use device::{Device, DeviceError, ExpertOp, Op, Stream};
use mesh::Rank;
use prove::outcome_from;
use testkit::intercepted::{Call, Group, Interceptor, intercept};
use testkit::layout::thread_engine;
use testkit::models::{plain_layout, proof_text};
use testkit::wrapped_engine::WrappedEngine;

use crate::experts::rig::{layout, models, training};

const RANKS: usize = 4;
/// Ranks that divide experts: 0 and 1, and 2 and 3, each on another host.
const EP: usize = 2;
/// How often a row goes to the rank of its expert: in the forward pass; with the gradient of its output in the backward
/// pass; and for each of the two weights of an expert.
const SENT: u64 = 1 + 2 + 2;
/// How often something comes back: its output, and the gradient of its input.
const RETURNED: u64 = 2;

/// From each rank to each other.
type Links = [[u64; RANKS]; RANKS];

#[derive(Default)]
struct Seen {
    /// Rows of a rank's tokens for experts of another.
    rows: Links,
    /// Bytes that passed through the transport in exchanges of rows.
    bytes: Links,
}

/// Counts on one rank.
struct Watcher {
    rank: usize,
    /// Experts of a rank.
    experts: usize,
    counts: Arc<Counts>,
    seen: Arc<Mutex<Seen>>,
}

impl Watcher {
    fn sent(&self) -> [u64; RANKS] {
        std::array::from_fn(|peer| self.counts.to(Rank(peer)).bytes)
    }
}

impl Interceptor for Watcher {
    fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        device.submit(stream, op)?;
        if let Op::Experts(ExpertOp::Route { choice, .. }) = op {
            let mut bytes = vec![0; choice.size_bytes()];
            device.read(*choice, &mut bytes)?;
            let seen = &mut *self.seen.lock().unwrap();
            for expert in bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)) {
                let owner = self.rank / EP * EP + usize::try_from(expert).unwrap() / self.experts;
                seen.rows[self.rank][owner] += 1;
            }
        }
        Ok(())
    }

    fn call(&self, _: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let before = self.sent();
        group.communicator.call(stream, call)?;
        if let Call::ExchangeRows { .. } = call {
            let (after, seen) = (self.sent(), &mut *self.seen.lock().unwrap());
            (0..RANKS).for_each(|peer| seen.bytes[self.rank][peer] += after[peer] - before[peer]);
        }
        Ok(())
    }
}

/// The bytes that the ranks of a run send each other.
fn seen(model: &ModelSpec, parallelism: Parallelism) -> Seen {
    let setup = layout(model, parallelism, training()).setup().unwrap();
    let counters: [Mutex<Option<Arc<Counts>>>; RANKS] = Default::default();
    let counting = |inner: Arc<dyn Transport>| -> Arc<dyn Transport> {
        let rank = inner.rank().0;
        let (counting, counts) = Counting::new(inner);
        assert!(counters[rank].lock().unwrap().replace(counts).is_none(), "a rank has one end");
        Arc::new(counting)
    };
    let engine = thread_engine(&setup).with_hosts(HostMap::by_name(&[0, 1, 0, 1])).wrapped(counting);
    let (seen, experts) = (Arc::new(Mutex::new(Seen::default())), model.experts.unwrap().number / EP);
    let watched = WrappedEngine::opened_by(Box::new(engine), |inner, rank, size, numerics| {
        let counts = Arc::clone(counters[rank.0].lock().unwrap().as_ref().unwrap());
        let watcher = Watcher { rank: rank.0, experts, counts, seen: Arc::clone(&seen) };
        Ok(intercept(inner.open(rank, size, numerics)?, watcher))
    });
    outcome_from(&setup, &watched, &proof_text(), None).unwrap();
    drop(watched);
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

#[test]
fn each_link_has_the_bytes_of_its_rows() {
    let (_, model) = models().swap_remove(0);
    let model = ModelSpec { experts: model.experts.map(|of| ExpertsSpec { hidden: 256, ..of }), ..model };
    for (recompute, microbatch_size) in [(Recompute::None, 1), (Recompute::Selective, 2)] {
        let parallelism =
            Parallelism { ep: EP, zero: ZeroStage::One, recompute, ..plain_layout(RANKS, 1, 1, microbatch_size) };
        let Seen { rows, bytes } = seen(&model, parallelism);
        let row_bytes = (model.hidden * size_of::<f32>()) as u64;
        for (from, to) in (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to))) {
            let expected = match from != to && from / EP == to / EP {
                true => (SENT * rows[from][to] + RETURNED * rows[to][from]) * row_bytes,
                false => 0,
            };
            assert_eq!(bytes[from][to], expected, "from {from} to {to}, {recompute:?}");
        }
        assert!([[0, 1], [1, 0], [2, 3], [3, 2]].iter().all(|[from, to]| bytes[*from][*to] > 0), "{bytes:?}");
    }
}
