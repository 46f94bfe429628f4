//! The lives that the memory plan gives to values are those that operations give them: each is first written and last
//! used where the plan says, so the largest sum of what is recorded to be alive is the plan's.

use std::collections::BTreeMap;
use std::sync::Mutex;

use config::Unit;
use device::DeviceError;
use program::{Extent, PlannedLife, RankPlan, Value};
use train::{MetaEngine, Observer, Ports, StepReport, StopRequest, Worker};

use crate::conservation::cases::{Case, cases};
use crate::conservation::watching::{Access, Touch, Watching};

/// First and last instruction that touched each planned life of one rank, by its index in the plan.
#[derive(Default)]
struct Recorded {
    spans: BTreeMap<usize, (usize, usize)>,
    scratch_bytes: usize,
    complaints: Vec<String>,
}

impl Recorded {
    fn see(&mut self, plan: &RankPlan, at: usize, touch: &Touch) {
        let bytes = touch.tensor.bytes();
        let scratch = plan.scratch();
        let is_state = plan
            .state()
            .iter()
            .any(|(_, place)| place.offset_bytes <= bytes.start && bytes.start < place.offset_bytes + place.len_bytes);
        if bytes.is_empty() || is_state {
            return;
        }
        let end_bytes = scratch.offset_bytes + scratch.len_bytes;
        if (scratch.offset_bytes..end_bytes).contains(&bytes.start) {
            self.scratch_bytes = self.scratch_bytes.max(bytes.end - scratch.offset_bytes);
            return;
        }
        let holds = |life: &PlannedLife| {
            let place = life.extent;
            place.offset_bytes <= bytes.start && bytes.end <= place.offset_bytes + place.len_bytes
        };
        let found = plan.lives().iter().position(|life| life.start <= at && at < life.end && holds(life));
        let Some(index) = found else {
            self.complaints.push(format!("instruction {at} touches {:?}, where nothing lives", touch.tensor));
            return;
        };
        let value = plan.lives()[index].value;
        let span = self.spans.entry(index).or_insert_with(|| {
            if touch.access == Access::Read {
                self.complaints.push(format!("instruction {at} reads the {value} before it is written"));
            }
            (at, at)
        });
        span.1 = at;
    }

    /// The plan's sum of what is alive, with lives as they were recorded.
    fn largest_live_bytes(&self, plan: &RankPlan) -> usize {
        let aligned = |bytes: usize| bytes.next_multiple_of(device::ALIGN_BYTES);
        let in_arena = |place: &&Extent| place.offset_bytes >= plan.host_bytes();
        let state = plan.state().iter().map(|(_, extent)| extent).filter(in_arena);
        let always: usize = state.map(|extent| aligned(extent.len_bytes)).sum();
        let mut changes = vec![];
        for (index, (first, last)) in &self.spans {
            let life = plan.lives()[*index];
            if !in_arena(&&life.extent) {
                continue;
            }
            let end = if ends_unseen(&life) { life.end } else { last + 1 };
            let size = aligned(life.extent.len_bytes) as isize;
            changes.extend([(*first, size), (end, -size)]);
        }
        changes.sort_unstable();
        let (mut live, mut largest) = (0, 0);
        for (_, change) in changes {
            live += change;
            largest = largest.max(live);
        }
        always + aligned(self.scratch_bytes) + largest as usize
    }
}

/// Whether a life ends later than any operation of this rank shows: what is lent ends where the receiver is done;
/// backward passes of weights read gradients of outputs and batches for some units, and without dropout, only; a lookup
/// reads rows of a table, which its record does not name; a shard that is all padding is reduced, and then nobody's.
fn ends_unseen(life: &PlannedLife) -> bool {
    let is_table = matches!(life.value, Value::Gathered(Unit::Table | Unit::Embedding));
    let is_read_by_some = matches!(life.value, Value::OutputGrad { .. } | Value::Batch(_) | Value::Reduced { .. });
    life.category == program::Category::Transfers || is_table || is_read_by_some
}

impl Recorded {
    /// Values that are planned to live at the peak, and are not touched from there on.
    fn in_vain(&self, plan: &RankPlan) -> Vec<String> {
        let peak = plan.peak();
        let is_in_vain = |index: usize, life: &PlannedLife| {
            let last = self.spans.get(&index).map(|(_, last)| *last);
            let is_in_arena = life.extent.offset_bytes >= plan.host_bytes();
            is_in_arena && life.start <= peak && peak < life.end && last.is_some_and(|last| last < peak)
        };
        let lives = plan.lives().iter().enumerate().filter(|(index, life)| is_in_vain(*index, life));
        lives.map(|(_, life)| format!("{} in {}..{}, peak at {peak}", life.value, life.start, life.end)).collect()
    }
}

struct Recorder<'a> {
    watching: &'a Watching,
    ranks: Vec<Mutex<Recorded>>,
}

impl Observer for Recorder<'_> {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let number = worker.ports.communicators.world().position();
        let touches = self.watching.take_touches(number);
        let mut recorded = self.ranks[number].lock().unwrap();
        for touch in touches {
            recorded.see(worker.position.plan, worker.position.at, &touch);
        }
        Ok(())
    }
}

fn record_lives(case: &Case, setup: &train::Setup) -> Vec<Recorded> {
    let watching = Watching::new(setup.mesh.world_size());
    let engine = watching.engine(MetaEngine::new(setup.groups()));
    let recorder = Recorder { watching: &watching, ranks: setup.mesh.ranks().map(|_| Mutex::default()).collect() };
    let tokens = &case.tokens();
    let ports = Ports::new(tokens, &recorder);
    train::run(setup, &engine, ports).unwrap();
    recorder.ranks.into_iter().map(|recorded| recorded.into_inner().unwrap()).collect()
}

/// A life may end later than its last use: gradients of outputs are kept for backward passes of weights, batches for
/// units that need no labels. At the peak nothing else is kept in vain.
#[test]
fn recorded_lives_are_the_planned_ones() {
    for case in cases() {
        let setup = case.setup();
        for (number, recorded) in record_lives(&case, &setup).iter().enumerate() {
            let place = format!("{}, rank {number}", case.name);
            let plan = setup.plan(setup.mesh.coord(mesh::Rank(number)).along(mesh::Axis::Pp));
            assert!(recorded.complaints.is_empty(), "{place}: {:?}", recorded.complaints);
            for (index, life) in plan.lives().iter().enumerate() {
                match recorded.spans.get(&index) {
                    None => assert_eq!(life.extent.len_bytes, 0, "{place}: {life:?} is never touched"),
                    Some((first, _)) => assert_eq!(*first, life.start, "{place}: {life:?}"),
                }
            }
            assert_eq!(
                recorded.scratch_bytes.next_multiple_of(device::ALIGN_BYTES),
                plan.scratch().len_bytes.next_multiple_of(device::ALIGN_BYTES)
            );
            let in_vain = recorded.in_vain(plan);
            assert_eq!(recorded.largest_live_bytes(plan), plan.largest_live_bytes(), "{place}: {in_vain:#?}");
        }
    }
}

/// The same record complains about an operation outside of what is planned.
#[test]
fn an_operation_outside_the_plan_is_seen() {
    let setup = cases()[0].setup();
    let (plan, mut recorded) = (setup.plan(0), Recorded::default());
    let life = plan.lives().iter().find(|life| life.start > 0 && life.extent.len_bytes > 0).unwrap();
    let tensor = device::Tensor::new(life.extent.offset_bytes, 1, life.extent.len_bytes / 4, device::Dtype::F32);
    recorded.see(plan, life.start, &Touch { tensor, access: Access::Read });
    recorded.see(
        plan,
        plan.lives().iter().map(|life| life.end).max().unwrap(),
        &Touch { tensor, access: Access::Write },
    );
    assert_eq!(recorded.complaints.len(), 2, "{:?}", recorded.complaints);
    assert!(recorded.complaints[0].contains("before it is written"), "{:?}", recorded.complaints);
    assert!(recorded.complaints[1].contains("where nothing lives"), "{:?}", recorded.complaints);
}
