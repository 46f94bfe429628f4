//! The first value at which two runs differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;

use config::Microbatch;
use device::{Bf16, DeviceError, Dtype, Element, F16};
use mesh::Rank;
use sync::{into_inner, lock};
use train::Worker;

use crate::copy::{Copy, CopyHeader};
use crate::exchange::{Exchange, from_message, to_message};
use crate::fingerprints::{Fingerprint, Fingerprints};
use crate::observed::{ValueBox, ValueKind, ValueName, finished};
use crate::runner::ProofError;
use crate::watch::Watch;

/// Runs the first steps of a layout, as many as are asked for, each rank seen by a watch.
pub type RunFirstSteps<'a> = dyn Fn(u32, &dyn Watch) -> Result<(), ProofError> + 'a;

/// One value at which two runs differ, and its first element that does.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub value: ValueName,
    pub element: ElementName,
    /// Elements that differ, of how many.
    pub differing: (usize, usize),
    /// Who holds what of the element, of each run. Nobody does where a run does not compute the value.
    pub holdings: [Vec<Holding>; 2],
    /// Its stored type.
    pub dtype: Dtype,
}

/// Where in a value an element is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementName {
    /// The value is a number.
    Only,
    /// Of a residual stream.
    Channel {
        /// Index in the step.
        sequence: usize,
        /// Place in the sequence.
        token: usize,
        /// Column.
        channel: usize,
    },
    /// Of a parameter: its index along each dim.
    Index(Vec<usize>),
}

/// One rank's copy of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    /// Number of the rank.
    pub rank: usize,
    /// Its coordinates: `pp 0, dp 1, tp 0`.
    pub place: String,
    /// The microbatch in which it computed the element, if it is of one.
    pub microbatch: Option<Microbatch>,
    pub value: f32,
}

/// The result of comparing two runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// This many values, and all copies of each, are the same bits.
    Nothing {
        /// Values of all steps.
        values: usize,
    },
    /// The first that differs.
    First(Box<Difference>),
}

/// The first value at which the first `steps` steps of two runs differ, or at which copies within one of them do. All
/// values are compared by fingerprints; runs that differ are then run once more, to keep that one value. All processes
/// of `exchange` call it; process 0 alone has the result.
///
/// # Errors
/// A run that fails.
pub fn first_difference(
    runs: [&RunFirstSteps<'_>; 2],
    steps: u32,
    exchange: &dyn Exchange,
) -> Result<Option<Found>, ProofError> {
    let fingerprints = |run: &RunFirstSteps<'_>| -> Result<BTreeMap<ValueName, Fingerprint>, ProofError> {
        let watch = Fingerprints::default();
        run(steps, &watch)?;
        if !exchange.is_first() {
            exchange.gather(watch.into_messages()?)?;
            return Ok(BTreeMap::new());
        }
        exchange.gather(vec![])?.iter().try_for_each(|message| watch.absorb(message))?;
        Ok(watch.into_values())
    };
    let (first, second) = (fingerprints(runs[0])?, fingerprints(runs[1])?);
    let found = first_that_differs(&first, &second);
    let Some(value) = from_message::<Option<ValueName>>(&exchange.broadcast(to_message(&found)?)?)? else {
        return Ok(exchange.is_first().then(|| Found::Nothing { values: names(&first, &second).len() }));
    };
    let copies = |run: &RunFirstSteps<'_>| -> Result<Vec<Copy>, ProofError> {
        let watch = CopiesOf { value: &value, copies: Mutex::default() };
        run(value.step, &watch)?;
        let mut copies = into_inner(watch.copies);
        if !exchange.is_first() {
            let messages = copies.iter().map(Copy::to_messages).collect::<Result<Vec<_>, _>>()?;
            exchange.gather(messages.concat())?;
            return Ok(vec![]);
        }
        for message in exchange.gather(vec![])? {
            copies.push(Copy::from_message(&message)?);
        }
        // Ranks come in any order; the report does not depend on it.
        copies.sort_by_key(|copy| (copy.header.rank, copy.header.microbatch));
        Ok(copies)
    };
    let copies = [copies(runs[0])?, copies(runs[1])?];
    Ok(exchange.is_first().then(|| Found::First(Box::new(Difference::within(&value, &copies)))))
}

type ByValue = BTreeMap<ValueName, Fingerprint>;

/// The names of the values of either run.
fn names<'a>(first: &'a ByValue, second: &'a ByValue) -> BTreeSet<&'a ValueName> {
    first.keys().chain(second.keys()).collect()
}

fn first_that_differs(first: &ByValue, second: &ByValue) -> Option<ValueName> {
    let is_same = |name: &ValueName| match (first.get(name), second.get(name)) {
        (Some(Fingerprint::Whole(a)), Some(Fingerprint::Whole(b))) => a == b,
        (Some(Fingerprint::Whole(_) | Fingerprint::Disagreement) | None, _) => false,
    };
    names(first, second).into_iter().find(|name| !is_same(name)).cloned()
}

/// Keeps all copies of one value.
struct CopiesOf<'a> {
    value: &'a ValueName,
    copies: Mutex<Vec<Copy>>,
}

impl Watch for CopiesOf<'_> {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.step + 1 != self.value.step {
            return Ok(());
        }
        let boxes = finished(worker).into_iter().filter(|value_box| value_box.what == self.value.what);
        for ValueBox { shape, region, tensor, microbatch, .. } in boxes {
            let number = worker.ports.communicators.world().position();
            let header = CopyHeader {
                rank: number,
                place: worker.position.setup.mesh.coord(Rank(number)).to_string(),
                microbatch: microbatch.map(|microbatch| microbatch.0),
                shape,
                sequence_length: worker.position.shape.sequence_length,
                start: region.start,
                extent: region.extent,
                dtype: tensor.dtype,
            };
            let values = device::read_floats(&*worker.ports.device, tensor)?;
            lock(&self.copies).push(Copy { header, values });
        }
        Ok(())
    }
}

impl Difference {
    fn within(value: &ValueName, copies: &[Vec<Copy>; 2]) -> Difference {
        let all = || copies.iter().flatten();
        let shape = all().next().map_or(&[] as &[usize], |copy| &copy.header.shape);
        let len = shape.iter().product();
        // The bits of the first holder, and whether another has different ones.
        let mut elements: Vec<(Option<u32>, bool)> = vec![(None, copies.iter().any(Vec::is_empty)); len];
        for (place, value) in all().flat_map(Copy::elements) {
            let (first, differs) = &mut elements[place];
            *differs |= *first.get_or_insert(value.to_bits()) != value.to_bits();
        }
        let place = elements.iter().position(|(_, differs)| *differs).unwrap_or(0);
        let sequence_length = all().next().map_or(1, |copy| copy.header.sequence_length);
        Difference {
            value: value.clone(),
            element: ElementName::of(&value.what, shape, place, sequence_length),
            differing: (elements.iter().filter(|(_, differs)| *differs).count(), len),
            holdings: copies.each_ref().map(|copies| holdings(copies, place)),
            dtype: all().next().map_or(Dtype::F32, |copy| copy.header.dtype),
        }
    }

    /// The distance of the farthest holdings, in numbers of the stored type; `None` where one is NaN or nobody holds
    /// the other.
    pub fn last_places(&self) -> Option<u64> {
        let held = self.holdings.iter().flatten().map(|holding| ordered(holding.value, self.dtype));
        let held = held.collect::<Option<Vec<i64>>>()?;
        let [largest, smallest] = [held.iter().max()?, held.iter().min()?];
        self.holdings.iter().all(|holdings| !holdings.is_empty()).then(|| largest.abs_diff(*smallest))
    }
}

fn holdings(copies: &[Copy], place: usize) -> Vec<Holding> {
    let of_copy = |copy: &Copy| {
        let (_, value) = copy.elements().find(|(element, _)| *element == place)?;
        let CopyHeader { rank, place, microbatch, .. } = &copy.header;
        Some(Holding { rank: *rank, place: place.clone(), microbatch: microbatch.map(Microbatch), value })
    };
    copies.iter().filter_map(of_copy).collect()
}

/// The number's place among those of `dtype` in ascending order, both zeros at 0; `None` for NaN.
fn ordered(value: f32, dtype: Dtype) -> Option<i64> {
    let (negative, magnitude) = match dtype {
        Dtype::Bf16 => split(i64::from(Bf16::narrow(value).0), 15),
        Dtype::F16 => split(i64::from(F16::narrow(value).0), 15),
        Dtype::F32 | Dtype::I32 | Dtype::I64 => split(i64::from(value.to_bits()), 31),
    };
    (!value.is_nan()).then_some(if negative { -magnitude } else { magnitude })
}

/// Sign and the other bits.
fn split(bits: i64, sign: u32) -> (bool, i64) {
    (bits >> sign & 1 == 1, bits & ((1 << sign) - 1))
}

impl ElementName {
    fn of(what: &ValueKind, shape: &[usize], place: usize, sequence_length: usize) -> ElementName {
        match (what, shape) {
            (ValueKind::Output(_) | ValueKind::OutputGradient(_), [_, width]) => {
                let (row, channel) = (place / width, place % width);
                ElementName::Channel { sequence: row / sequence_length, token: row % sequence_length, channel }
            }
            (ValueKind::Loss | ValueKind::Norm, _) => ElementName::Only,
            (
                ValueKind::Gradient(..) | ValueKind::Weight(..) | ValueKind::Output(_) | ValueKind::OutputGradient(_),
                shape,
            ) => {
                // Elements of each index along a dim.
                let stride = |dim: usize| shape[dim + 1..].iter().product::<usize>();
                ElementName::Index((0..shape.len()).map(|dim| place / stride(dim) % shape[dim]).collect())
            }
        }
    }
}

impl fmt::Display for ElementName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementName::Only => Ok(()),
            ElementName::Channel { sequence, token, channel } => {
                write!(f, ", sequence {sequence}, token {token}, channel {channel}")
            }
            ElementName::Index(index) => write!(f, ", element {index:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_places_are_those_of_the_stored_type() {
        let between = |a: f32, b: f32, dtype| {
            let holding = |value| vec![Holding { rank: 0, place: String::new(), microbatch: None, value }];
            let difference = Difference {
                value: ValueName { step: 1, what: ValueKind::Loss },
                element: ElementName::Only,
                differing: (1, 1),
                holdings: [holding(a), holding(b)],
                dtype,
            };
            difference.last_places()
        };
        assert_eq!(between(1.0, 1.0 + f32::EPSILON, Dtype::F32), Some(1));
        assert_eq!(between(f32::from_bits(1), -f32::from_bits(1), Dtype::F32), Some(2));
        assert_eq!(between(1.0, 1.0 + 1.0 / 128.0, Dtype::Bf16), Some(1));
        assert_eq!(between(-1.0, -1.0 - 3.0 / 1024.0, Dtype::F16), Some(3));
        assert_eq!(between(1.0, f32::NAN, Dtype::F32), None);
        assert_eq!(between(0.0, -0.0, Dtype::F32), Some(0));
    }

    #[test]
    fn elements_are_named_by_what_they_are_of() {
        let name = |what: ValueKind, shape: &[usize], place| ElementName::of(&what, shape, place, 4).to_string();
        assert_eq!(name(ValueKind::Output(config::Unit::Embedding), &[8, 10], 57), ", sequence 1, token 1, channel 7");
        assert_eq!(name(ValueKind::Weight(config::Unit::Head, "w".into()), &[3, 10], 27), ", element [2, 7]");
        assert_eq!(name(ValueKind::Norm, &[1], 0), "");
    }
}
