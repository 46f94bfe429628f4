//! The state of all ranks between two steps, as whole tensors.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use checkpoint::StatePart;
use config::ModelSpec;
use device::{DeviceError, Tensor};
use mesh::{CopyRun, Region, copy_runs};
use prove::Watch;
use sync::lock;
use train::{Copies, UnitState, Worker, pieces};

/// When ranks are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After the last instruction of a step.
    End,
    /// After the first, before which only a resumption writes state.
    Beginning,
}

/// Weights, moments, and the parameters that layers read, of all ranks; and each rank's loss scale and place.
#[derive(Debug)]
pub struct Snapshot {
    /// Counted from 1.
    step: u32,
    when: When,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Bits of each element, by the names of checkpoints; none where no rank holds the element.
    tensors: BTreeMap<String, Vec<Option<u32>>>,
    /// Ranks that hold other bits of the same element.
    conflicts: Vec<String>,
    /// `first sequence, skipped steps, loss scale` of each rank.
    counters: Vec<String>,
}

/// Precedes the name of a parameter as layers read it, which may be narrower.
const READ: &str = "read.";

impl Snapshot {
    pub fn at_the_end_of(step: u32) -> Snapshot {
        Snapshot { step, when: When::End, held: Mutex::default() }
    }

    pub fn at_the_beginning_of(step: u32) -> Snapshot {
        Snapshot { step, when: When::Beginning, held: Mutex::default() }
    }

    /// All that is not the same in both; nothing may be missing.
    pub fn differences(&self, later: &Snapshot, model: &ModelSpec) -> Vec<String> {
        let [left, arrived] = [self, later].map(|snapshot| lock(&snapshot.held));
        let mut found = [left.conflicts.clone(), arrived.conflicts.clone()].concat();
        let parameters = config::unique_parameters(model) as usize;
        for part in StatePart::kept(config::Averages::Off) {
            let of_part = config::all_params(model).map(|param| part.tensor(&param.name));
            let elements: usize = of_part.map(|name| left.tensors.get(&name).map_or(0, Vec::len)).sum();
            if elements != parameters {
                found.push(format!("{part:?}: {elements} of {parameters} elements were held"));
            }
        }
        for (name, bits) in &left.tensors {
            match arrived.tensors.get(name) {
                Some(others) => {
                    let differing = bits.iter().zip(others).filter(|(a, b)| a != b || a.is_none()).count();
                    if differing > 0 || bits.len() != others.len() {
                        found.push(format!("{name}: {differing} of {} elements are others", bits.len()));
                    }
                }
                None => found.push(format!("{name} has not arrived")),
            }
        }
        let counters =
            |held: &Held| held.counters.iter().min().cloned().into_iter().chain(held.counters.iter().max().cloned());
        if !counters(&left).eq(counters(&arrived)) {
            found.push(format!("counters {:?} have become {:?}", left.counters, arrived.counters));
        }
        found
    }

    /// The elements `elements` of the flat buffer of `state`, which `tensor` holds.
    fn keep(
        &self,
        worker: &Worker<'_>,
        state: &UnitState,
        (elements, tensor): (Range<usize>, Tensor),
        name: impl Fn(&str) -> String,
    ) -> Result<(), DeviceError> {
        for piece in pieces(&state.layout, elements.clone(), worker.position.rank.model, Copies::Every) {
            let local = piece.elements.start - elements.start..piece.elements.end - elements.start;
            let values = device::read_floats(&*worker.ports.device, tensor.elements(local))?;
            let (name, shape) = (name(&piece.param.name), Region::whole(&piece.param.shape));
            let mut held = lock(&self.held);
            let whole = held.tensors.entry(name.clone()).or_insert_with(|| vec![None; shape.len()]);
            let mut conflicts = 0;
            for CopyRun { source, target, len } in copy_runs(&piece.region, &shape) {
                for (place, value) in whole[target..target + len].iter_mut().zip(&values[source..source + len]) {
                    conflicts +=
                        usize::from(place.replace(value.to_bits()).is_some_and(|bits| bits != value.to_bits()));
                }
            }
            if conflicts > 0 {
                held.conflicts.push(format!("{name}: copies of {conflicts} elements differ"));
            }
        }
        Ok(())
    }
}

impl Watch for Snapshot {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let at = match self.when {
            When::End => worker.position.program.instrs.len() - 1,
            When::Beginning => 0,
        };
        if worker.position.step + 1 != self.step || worker.position.at != at {
            return Ok(());
        }
        for state in worker.state.units.values() {
            let moments = state.held_moments().expect("a run that trains");
            for (held, part) in [state.weights().clone()].into_iter().chain(moments).zip(StatePart::ALL) {
                self.keep(worker, state, (held.elements, held.tensor), |param| part.tensor(param))?;
            }
            let read = state.params.clone();
            self.keep(worker, state, (read.elements, read.tensor), |param| format!("{READ}{param}"))?;
        }
        // Of the end, the next step's.
        let next = if self.when == When::End { worker.position.step + 1 } else { worker.position.step };
        let first_sequence = worker.position.setup.train.batches().at(next).first_sequence;
        let (skipped, scale) = (worker.state.loss_scale.skipped_steps(), worker.state.loss_scale.state());
        let mut held = lock(&self.held);
        held.counters.push(format!("sequence {first_sequence}, {skipped} skipped, {scale:?}"));
        Ok(())
    }
}
