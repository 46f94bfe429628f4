//! Hashes of weights and moments between two updates: taken when a step has ended, compared before the next one updates
//! them.

use std::time::{Duration, Instant};

use checkpoint::Hash;
use config::{Recheck, Unit};
use device::{Device, DeviceError, Tensor};

use crate::worker::Worker;
use crate::worker::unit_state::{Held, UnitState};

/// Bytes of a block, at most.
const STATE_BLOCK_BYTES: usize = 256 << 10;
/// Share of a step that hashing may take where blocks are sampled.
const TIME_SHARE: f64 = 0.005;

/// A run of elements of one tensor of one unit.
struct StateBlock {
    unit: Unit,
    part: &'static str,
    /// The parameter that its first element belongs to.
    parameter: String,
    /// Number of the block in its tensor, and how many there are.
    number: [usize; 2],
    tensor: Tensor,
    /// As the last update left it.
    hash: Option<Hash>,
}

/// The state of one rank, in blocks.
pub(crate) struct StateHashes {
    recheck: Recheck,
    blocks: Vec<StateBlock>,
    /// First of the blocks that have hashes; they follow each other, the first after the last.
    first: usize,
    /// Blocks that have hashes in each step.
    count: usize,
    buffer: Vec<u8>,
    spent: Duration,
    /// Steps that were done when the hashes were taken.
    after_steps: u32,
}

impl StateHashes {
    /// Hashes of no block yet.
    pub(crate) fn new(recheck: Recheck, worker: &Worker<'_>) -> StateHashes {
        let blocks: Vec<StateBlock> = match recheck {
            Recheck::Off => vec![],
            Recheck::Sample | Recheck::All => worker.state.units.values().flat_map(blocks_of).collect(),
        };
        let count = match recheck {
            Recheck::Off => 0,
            Recheck::Sample => blocks.len().div_ceil(64),
            Recheck::All => blocks.len(),
        };
        let largest = blocks.iter().map(|block| block.tensor.size_bytes()).max().unwrap_or(0);
        let (first, spent, after_steps) = (0, Duration::ZERO, 0);
        StateHashes { recheck, blocks, first, count, buffer: vec![0; largest], spent, after_steps }
    }

    /// Takes the hashes that [`StateHashes::verify`] compares, after a step that took `wall`.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn take(&mut self, device: &dyn Device, after_steps: u32, wall: Duration) -> Result<(), DeviceError> {
        self.after_steps = after_steps;
        self.choose(wall);
        let began = Instant::now();
        for index in self.chosen() {
            self.blocks[index].hash = Some(self.hash(device, index)?);
        }
        self.spent += began.elapsed();
        Ok(())
    }

    /// Compares the state with its hashes.
    ///
    /// # Errors
    /// [`DeviceError::Corrupted`] names the first block that has changed.
    pub(crate) fn verify(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        let began = Instant::now();
        for index in self.chosen() {
            let (Some(expected), found) = (self.blocks[index].hash, self.hash(device, index)?) else { continue };
            if found != expected {
                let again = self.hash(device, index)?;
                return Err(self.corrupted(index, [expected, found, again]));
            }
        }
        self.spent += began.elapsed();
        Ok(())
    }

    /// Blocks with hashes, by index.
    fn chosen(&self) -> Vec<usize> {
        (self.first..self.first + self.count).map(|index| index % self.blocks.len()).collect()
    }

    /// Chooses the blocks of the next step: those that follow, as many as the share of time allows.
    fn choose(&mut self, wall: Duration) {
        self.blocks.iter_mut().for_each(|block| block.hash = None);
        if self.recheck == Recheck::Sample && !self.blocks.is_empty() {
            self.first = (self.first + self.count) % self.blocks.len();
            let spent = self.spent.as_secs_f64();
            if spent > 0.0 && wall > Duration::ZERO {
                let allowed = self.count as f64 * TIME_SHARE * wall.as_secs_f64() / spent;
                // Half the way, so that one slow step changes little.
                let next = 0.5 * (self.count as f64 + allowed);
                self.count = (next as usize).clamp(1, self.blocks.len());
            }
        }
        self.spent = Duration::ZERO;
    }

    fn hash(&mut self, device: &dyn Device, index: usize) -> Result<Hash, DeviceError> {
        let tensor = self.blocks[index].tensor;
        let bytes = &mut self.buffer[..tensor.size_bytes()];
        device.read(tensor, bytes)?;
        Ok(Hash::of(bytes))
    }

    fn corrupted(&self, index: usize, [expected, found, again]: [Hash; 3]) -> DeviceError {
        let StateBlock { unit, part, parameter, number: [number, count], tensor, .. } = &self.blocks[index];
        let third = match again == expected {
            true => "read again, it is as it was: a read went wrong",
            false if again == found => "read again, it is the same: memory keeps wrong bits",
            false => "read again, it is different once more: memory does not keep its bits",
        };
        let since = match self.after_steps {
            0 => "since the start".to_string(),
            steps => format!("since step {steps} updated it"),
        };
        DeviceError::Corrupted {
            what: format!(
                "{part} of {unit}, block {number} of {count} from {parameter} on ({} bytes) changed {since}: XXH3 {expected} is now \
                 {found}; {third}",
                tensor.size_bytes()
            ),
        }
    }
}

fn blocks_of(state: &UnitState) -> Vec<StateBlock> {
    let moments = state.held_moments().into_iter().flatten().zip(["first moments", "second moments"]);
    let masters = state.masters.clone().into_iter().map(|held| (held, "master weights"));
    let average = state.average.clone().into_iter().map(|held| (held, "averages"));
    let all = std::iter::once((state.params.clone(), "weights")).chain(masters).chain(moments).chain(average);
    all.flat_map(|(held, part)| blocks_of_tensor(state, &held, part)).collect()
}

fn blocks_of_tensor(state: &UnitState, held: &Held, part: &'static str) -> Vec<StateBlock> {
    let elements = STATE_BLOCK_BYTES / held.tensor.dtype.size_bytes();
    let count = held.tensor.len().div_ceil(elements);
    let block = |index: usize| {
        let range = index * elements..held.tensor.len().min((index + 1) * elements);
        let first = held.elements.start + range.start;
        let segment = state.layout.segments.iter().find(|segment| segment.range().end > first);
        StateBlock {
            unit: state.unit,
            part,
            parameter: segment.map_or("padding".into(), |segment| segment.param.name.clone()),
            number: [index + 1, count],
            tensor: held.tensor.elements(range),
            hash: None,
        }
    };
    (0..count).map(block).collect()
}
