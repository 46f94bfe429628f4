//! Whether ranks that hold the same elements of a tensor hold the same bits.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use device::{DeviceError, Tensor};
use mesh::Region;
use prove::Watch;
use sync::lock;
use train::{Copies, Held, UnitState, Worker, pieces};

/// The kind of a copied tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Its values.
    Weights,
    /// The values that the optimizer updates, where those are others.
    Masters,
    /// First moment of its gradients.
    FirstMoment,
    /// Second moment of its gradients.
    SecondMoment,
}

/// A box of a global tensor on one rank.
#[derive(Clone, Debug)]
struct Copy {
    /// `dp 1, tp 0, pp 1`.
    holder: String,
    region: Region,
    values: Vec<f32>,
}

/// Copies of ranks, by tensor.
type Holdings = BTreeMap<(String, Kind), Vec<Copy>>;

/// Keeps what every rank holds after every `every` steps, and compares it. A later step replaces an earlier one.
#[derive(Debug)]
pub struct Replicas {
    every: u32,
    holdings: Mutex<Holdings>,
}

/// Two ranks that disagree.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind} of {name} differ in {elements} elements, by {largest:e} at most, between {first} and {other}")]
pub struct Disagreement {
    /// The tensor.
    pub name: String,
    /// The kind of its tensor.
    pub kind: Kind,
    /// One rank.
    pub first: String,
    pub other: String,
    /// Elements with different bits.
    pub elements: usize,
    /// Largest difference.
    pub largest: f32,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Weights => "weights",
            Kind::Masters => "master weights",
            Kind::FirstMoment => "first moments",
            Kind::SecondMoment => "second moments",
        })
    }
}

impl Replicas {
    /// Looks after step `every`, `2 every`, and so on.
    pub fn every(every: u32) -> Replicas {
        Replicas { every, holdings: Mutex::default() }
    }

    /// How many elements were compared with those of another rank, or all pairs of ranks that disagree. Weights, and
    /// moments as far as several ranks hold them.
    ///
    /// # Errors
    /// See [`Disagreement`].
    pub fn compare(&self) -> Result<usize, Vec<Disagreement>> {
        let holdings = lock(&self.holdings);
        let (mut compared, mut disagreements) = (0, vec![]);
        for ((name, kind), copies) in holdings.iter() {
            for (index, copy) in copies.iter().enumerate() {
                let Some(first) = copies[..index].iter().find(|other| other.region == copy.region) else { continue };
                compared += copy.values.len();
                disagreements.extend(disagreement(name, *kind, first, copy));
            }
        }
        if disagreements.is_empty() { Ok(compared) } else { Err(disagreements) }
    }

    fn keep(&self, worker: &Worker<'_>, state: &UnitState, held_tensor: HeldTensor) -> Result<(), DeviceError> {
        let holder = format!(
            "dp {}, tp {}, pp {}",
            worker.position.order.replica, worker.position.rank.tensor.position, worker.position.program.view.pp
        );
        for piece in pieces(&state.layout, held_tensor.elements.clone(), worker.position.rank.model, Copies::Every) {
            let place =
                piece.elements.start - held_tensor.elements.start..piece.elements.end - held_tensor.elements.start;
            let values = device::read_floats(&*worker.ports.device, held_tensor.tensor.elements(place))?;
            let copy = Copy { holder: holder.clone(), region: piece.region, values };
            let mut holdings = lock(&self.holdings);
            let copies = holdings.entry((piece.param.name.clone(), held_tensor.kind)).or_default();
            copies.retain(|old| old.region != copy.region || old.holder != copy.holder);
            copies.push(copy);
            // Ranks come in any order; the report does not depend on it.
            copies.sort_by(|a, b| a.holder.cmp(&b.holder));
        }
        Ok(())
    }
}

/// Elements of a unit's flat buffer and where they are kept.
struct HeldTensor {
    kind: Kind,
    tensor: Tensor,
    elements: Range<usize>,
}

impl Watch for Replicas {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let is_last = worker.position.at + 1 == worker.position.program.instrs.len();
        if !is_last || !(worker.position.step + 1).is_multiple_of(self.every) {
            return Ok(());
        }
        for state in worker.state.units.values() {
            let Held { elements, tensor } = state.params.clone();
            let weights = HeldTensor { kind: Kind::Weights, tensor, elements };
            self.keep(worker, state, weights)?;
            if let Some(Held { elements, tensor }) = state.masters.clone() {
                self.keep(worker, state, HeldTensor { kind: Kind::Masters, tensor, elements })?;
            }
            let moments = state.held_moments().into_iter().flatten().zip([Kind::FirstMoment, Kind::SecondMoment]);
            for (Held { elements, tensor }, kind) in moments {
                self.keep(worker, state, HeldTensor { kind, tensor, elements })?;
            }
        }
        Ok(())
    }
}

fn disagreement(name: &str, kind: Kind, first: &Copy, other: &Copy) -> Option<Disagreement> {
    let differing = || first.values.iter().zip(&other.values).filter(|(a, b)| a.to_bits() != b.to_bits());
    let elements = differing().count();
    (elements > 0).then(|| Disagreement {
        name: name.into(),
        kind,
        first: first.holder.clone(),
        other: other.holder.clone(),
        elements,
        largest: differing().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max),
    })
}
