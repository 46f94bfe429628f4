//! Memory whose contents must not matter is filled with not-a-number: what is read before it is written shows.

use device::{Device, DeviceError, Dtype, Tensor};
use program::{Category, Extent, PlannedLife};
use prove::Watch;
use train::{RankEngine, Worker};

/// A quiet not-a-number, as are its halves in both narrow types; as an integer it is not a token, position or label.
const POISON: u32 = 0x7fff_7fed;

/// The same rank, every byte of its arena poisoned before its first operation.
///
/// # Errors
/// The device's.
pub fn poison_arena(rank: RankEngine, arena_bytes: usize) -> Result<RankEngine, DeviceError> {
    fill(&*rank.device, Extent { offset_bytes: 0, len_bytes: arena_bytes })?;
    Ok(rank)
}

/// Poisons, after each instruction, the places of values whose lives are over, and the scratch stack.
///
/// A value that was lent to a receiver may be overwritten by the first instruction that waits for something after the
/// receive, not before that instruction has waited. So places of transfers are poisoned one instruction later than
/// others, unless they are in use again by then.
#[derive(Clone, Copy, Debug)]
pub struct PoisonFreed;

impl Watch for PoisonFreed {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        let (device, at) = (&*worker.ports.device, worker.position.at);
        fill(device, worker.position.plan.scratch())?;
        let lives = worker.position.plan.lives();
        let in_use = |extent: Extent| {
            lives.iter().any(|life| life.start <= at && at < last(life) && overlap(life.extent, extent))
        };
        let over = lives.iter().filter(|life| last(life) == at);
        over.filter(|life| !in_use(life.extent)).try_for_each(|life| fill(device, life.extent))
    }
}

/// The instruction after which nobody reads a value.
fn last(life: &PlannedLife) -> usize {
    match life.category {
        // Sums of gradients are the caller's after the last instruction.
        Category::Transfers | Category::Gradients => life.end,
        Category::Batches
        | Category::Activations
        | Category::Parameters
        | Category::Optimizer
        | Category::Staged
        | Category::Gathered
        | Category::Unreduced
        | Category::Cache
        | Category::Constants
        | Category::Scratch
        | Category::Gaps => life.end - 1,
    }
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.offset_bytes < b.offset_bytes + b.len_bytes && b.offset_bytes < a.offset_bytes + a.len_bytes
}

/// Whether these bytes are nothing but poison.
pub fn is_poison(bytes: &[u8]) -> bool {
    bytes.chunks(4).all(|word| word == POISON.to_le_bytes())
}

fn fill(device: &dyn Device, extent: Extent) -> Result<(), DeviceError> {
    let words = extent.len_bytes / 4;
    let place = Tensor::new(extent.offset_bytes, 1, words, Dtype::I32);
    device.write(place, bytemuck::cast_slice(&vec![POISON; words]))
}
