//! Every value of a run as one number, the same for every way of sharding the value.

use std::collections::BTreeMap;
use std::sync::Mutex;

use device::DeviceError;
use mesh::{CopyRun, Region, copy_runs};
use serde::{Deserialize, Serialize};
use sync::{into_inner, lock};
use train::Worker;

use crate::exchange::{from_message, to_message};
use crate::observed::{ValueBox, ValueName, finished};
use crate::runner::ProofError;
use crate::watch::Watch;

/// Fingerprints of all values of a run. That of a value is the sum of a mixed number per element, made of the element's
/// place in the value and its bits, so that those of shards add up to that of the whole.
#[derive(Debug, Default)]
pub struct Fingerprints {
    values: Mutex<BTreeMap<ValueName, Boxes>>,
}

/// By box, where it starts and how far it extends.
type Boxes = BTreeMap<(Vec<usize>, Vec<usize>), Copies>;

/// The copies of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Copies {
    /// They are the same bits.
    Agree(u64),
    /// They are not.
    Disagree,
}

impl Copies {
    fn and(self, others: Copies) -> Copies {
        if self == others { self } else { Copies::Disagree }
    }
}

/// Boxes in a message.
const RECORDS: usize = 1 << 13;

/// A box in a message.
#[derive(Debug, Serialize, Deserialize)]
struct BoxRecord {
    name: ValueName,
    start: Vec<usize>,
    extent: Vec<usize>,
    copies: Copies,
}

/// The hash of a value, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// Of all of its elements.
    Whole(u64),
    /// Ranks that hold the same elements hold different bits.
    Disagreement,
}

impl Fingerprints {
    /// By value, in the order of values.
    pub fn into_values(self) -> BTreeMap<ValueName, Fingerprint> {
        let values = into_inner(self.values);
        let whole = |boxes: Boxes| {
            boxes.into_values().fold(Fingerprint::Whole(0), |sum, copies| match (sum, copies) {
                (Fingerprint::Whole(sum), Copies::Agree(part)) => Fingerprint::Whole(sum.wrapping_add(part)),
                (Fingerprint::Disagreement, _) | (_, Copies::Disagree) => Fingerprint::Disagreement,
            })
        };
        values.into_iter().map(|(name, boxes)| (name, whole(boxes))).collect()
    }

    /// All of it for [`Fingerprints::absorb`], in messages of some MB.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    pub(crate) fn into_messages(self) -> Result<Vec<Vec<u8>>, ProofError> {
        let values = into_inner(self.values);
        let boxes = values.into_iter().flat_map(|(name, boxes)| {
            boxes.into_iter().map(move |((start, extent), copies)| BoxRecord {
                name: name.clone(),
                start,
                extent,
                copies,
            })
        });
        let records: Vec<BoxRecord> = boxes.collect();
        records.chunks(RECORDS).map(|records| to_message(&records)).collect()
    }

    /// Adds the boxes of a message of another process.
    ///
    /// # Errors
    /// [`ProofError::Processes`].
    pub(crate) fn absorb(&self, message: &[u8]) -> Result<(), ProofError> {
        let records: Vec<BoxRecord> = from_message(message)?;
        for BoxRecord { name, start, extent, copies } in records {
            self.add(name, Region { start, extent }, copies);
        }
        Ok(())
    }

    fn add(&self, name: ValueName, region: Region, others: Copies) {
        let mut values = lock(&self.values);
        let copies = values.entry(name).or_default().entry((region.start, region.extent));
        copies.and_modify(|copies| *copies = copies.and(others)).or_insert(others);
    }
}

impl Watch for Fingerprints {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        for ValueBox { what, shape, region, tensor, .. } in finished(worker) {
            let values = device::read_floats(&*worker.ports.device, tensor)?;
            let fingerprint = fingerprint(&shape, &region, &values);
            self.add(ValueName { step: worker.position.step + 1, what }, region, Copies::Agree(fingerprint));
        }
        Ok(())
    }
}

/// Of the elements `region` of a value of `shape`.
fn fingerprint(shape: &[usize], region: &Region, values: &[f32]) -> u64 {
    let mut sum = 0u64;
    for CopyRun { source, target, len } in copy_runs(region, &Region::whole(shape)) {
        for (index, value) in values[source..source + len].iter().enumerate() {
            sum = sum.wrapping_add(mixed((target + index) as u64, value.to_bits()));
        }
    }
    sum
}

/// SplitMix64's output function (Steele, Lea, Flood 2014) of a place and the bits there.
fn mixed(place: u64, bits: u32) -> u64 {
    let mut x = (place << 32 ^ place >> 32 ^ u64::from(bits)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up_to_the_whole() {
        let shape = [2, 3];
        let region = |start: [usize; 2], extent: [usize; 2]| Region { start: start.into(), extent: extent.into() };
        let of = |region: &Region, values: &[f32]| fingerprint(&shape, region, values);
        let whole = of(&Region::whole(&shape), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let left = of(&region([0, 0], [2, 1]), &[1.0, 4.0]);
        let right = of(&region([0, 1], [2, 2]), &[2.0, 3.0, 5.0, 6.0]);
        assert_eq!(left.wrapping_add(right), whole);
        assert_ne!(of(&Region::whole(&shape), &[1.0, 2.0, 3.0, 4.0, 6.0, 5.0]), whole);
        assert_ne!(of(&region([0, 0], [1, 1]), &[0.0]), of(&region([0, 0], [1, 1]), &[-0.0]));
    }
}
