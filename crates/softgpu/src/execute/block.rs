//! A block: its memory, and its warps in turns.

use super::barriers::{Arrivals, BARRIERS, Wait};
use super::fault::{Fault, FaultKind};
use super::instruction_sets::InstructionSet;
use super::launch::Launch;
use super::registers::Registers;
use super::transfer::{check_alignment, place};
use super::warp::{Progress, Warp};
use crate::code::Kernel;
use crate::memory::global::Global;
use crate::ptx::{Space, Special};

/// The memory that a warp sees.
#[derive(Debug)]
pub struct Memory<'a> {
    /// That of the GPU.
    pub global: &'a mut Global,
    /// The allocation that was found last.
    pub last: usize,
    /// The arguments.
    pub parameters: &'a [u8],
    /// That of the block.
    pub shared: &'a mut [u8],
    /// That of the warp's threads, one after the other.
    pub local: &'a mut [u8],
    /// Bytes of one thread.
    pub local_bytes: usize,
}

impl Memory<'_> {
    fn outside(space: Space, address: u64, bytes: usize, size: usize, lane: usize) -> Fault {
        let name = match space {
            Space::Shared => "shared memory of a block",
            Space::Local => "local memory of a thread",
            Space::Param => "the arguments",
            Space::Generic | Space::Global | Space::Const => "memory",
        };
        let text = format!("{bytes} bytes at {address:#x} lie outside of {name}, which has {size} bytes");
        Fault::of_lane(FaultKind::Access, lane, text)
    }

    fn missing(&self, address: u64, bytes: usize, lane: usize) -> Fault {
        let text = format!("{bytes} bytes at {address:#x} have no memory: {}", self.global.nearest(address));
        Fault::of_lane(FaultKind::Access, lane, text)
    }

    fn allocation(&mut self, address: u64, bytes: usize, lane: usize) -> Result<usize, Fault> {
        let is_in_last =
            |allocation: &crate::memory::global::Allocation| allocation.offset_of(address, bytes).is_some();
        if !self.global.get(self.last).is_some_and(is_in_last) {
            self.last = self.global.find(address, bytes).ok_or_else(|| self.missing(address, bytes, lane))?;
        }
        Ok(self.last)
    }

    /// The bytes that a lane reads.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn read(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&[u8], Fault> {
        let (space, address) = place(space, address);
        check_alignment(address, bytes, lane)?;
        let (memory, start): (&[u8], u64) = match space {
            Space::Global | Space::Generic | Space::Const => {
                let index = self.allocation(address, bytes, lane)?;
                let allocation = self.global.get(index).ok_or_else(|| self.missing(address, bytes, lane))?;
                (&allocation.bytes, allocation.start)
            }
            Space::Shared => (self.shared, 0),
            Space::Local => (&self.local[lane * self.local_bytes..(lane + 1) * self.local_bytes], 0),
            Space::Param => (self.parameters, 0),
        };
        let offset = usize::try_from(address.wrapping_sub(start)).unwrap_or(usize::MAX);
        let end = offset.saturating_add(bytes);
        memory.get(offset..end).ok_or_else(|| Memory::outside(space, address, bytes, memory.len(), lane))
    }

    /// The bytes that a lane writes.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn write(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&mut [u8], Fault> {
        let (space, address) = place(space, address);
        check_alignment(address, bytes, lane)?;
        let (memory, start): (&mut [u8], u64) = match space {
            Space::Global | Space::Generic | Space::Const => {
                let index = self.allocation(address, bytes, lane)?;
                let missing = Memory::outside(space, address, bytes, 0, lane);
                let allocation = self.global.get_mut(index).ok_or(missing)?;
                if allocation.is_constant {
                    let text = format!("{bytes} bytes at {address:#x} are constant memory");
                    return Err(Fault::of_lane(FaultKind::Access, lane, text));
                }
                (&mut allocation.bytes, allocation.start)
            }
            Space::Shared => (self.shared, 0),
            Space::Local => (&mut self.local[lane * self.local_bytes..(lane + 1) * self.local_bytes], 0),
            Space::Param => {
                let text = format!("{bytes} bytes at {address:#x} are arguments, which kernels only read");
                return Err(Fault::of_lane(FaultKind::Access, lane, text));
            }
        };
        let offset = usize::try_from(address.wrapping_sub(start)).unwrap_or(usize::MAX);
        let end = offset.saturating_add(bytes);
        let size = memory.len();
        memory.get_mut(offset..end).ok_or_else(|| Memory::outside(space, address, bytes, size, lane))
    }

    /// The bytes that an atomic of a lane reads and writes.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn change(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&mut [u8], Fault> {
        self.write(space, address, bytes, lane)
    }
}

/// What the warps of a block share.
#[derive(Debug)]
pub struct BlockState {
    /// Its place in the grid.
    pub index: [u32; 3],
    /// Its shared memory.
    pub shared: Vec<u8>,
    /// Threads that have arrived at barriers without waiting.
    pub arrivals: Arrivals,
}

/// Instructions that a warp runs before another one has its turn.
const TURN: u64 = 4096;

/// Runs a block to its end. Returns the warp of a fault with it.
pub fn run_block(
    launch: &Launch<'_>,
    global: &mut Global,
    left: &mut u64,
    index: [u32; 3],
) -> Result<(), (usize, Fault)> {
    let set = InstructionSet::widest();
    let shared = launch.kernel.shared_bytes + launch.shape.shared_bytes as usize;
    let mut state = BlockState { index, shared: vec![0; shared], arrivals: [0; BARRIERS] };
    let threads = launch.shape.block.iter().product::<u32>() as usize;
    let mut warps: Vec<Warp> = (0..threads.div_ceil(32)).map(|warp| new_warp(launch, index, warp, threads)).collect();
    let mut waits: Vec<Option<Wait>> = vec![None; warps.len()];
    let mut has_ended = vec![false; warps.len()];
    loop {
        let mut is_any = false;
        for number in 0..warps.len() {
            if has_ended[number] || waits[number].is_some() {
                continue;
            }
            is_any = true;
            let progress = warps[number].run(launch, global, &mut state, set, TURN, left);
            match progress.map_err(|fault| (number, fault))? {
                Progress::Ended => has_ended[number] = true,
                Progress::AtBarrier(wait) => waits[number] = Some(wait),
                Progress::Paused => {}
            }
        }
        let is_released = release(launch.kernel, &mut state, &mut warps, &mut waits, &has_ended)?;
        if has_ended.iter().all(|ended| *ended) {
            return Ok(());
        }
        if !is_any && !is_released {
            return Err(stuck(launch.kernel, &waits, &state));
        }
    }
}

/// Lets warps go on whose barrier is complete.
fn release(
    kernel: &Kernel,
    state: &mut BlockState,
    warps: &mut [Warp],
    waits: &mut [Option<Wait>],
    has_ended: &[bool],
) -> Result<bool, (usize, Fault)> {
    let mut is_released = false;
    for id in 0..BARRIERS {
        let at: Vec<usize> = (0..waits.len()).filter(|warp| waits[*warp].is_some_and(|wait| wait.id == id)).collect();
        let Some(first) = at.first().and_then(|warp| waits[*warp]) else { continue };
        let is_complete = match first.threads {
            Some(threads) => at.len() as u32 * 32 + state.arrivals[id] >= threads,
            None => at.len() == has_ended.iter().filter(|ended| !**ended).count(),
        };
        if !is_complete {
            continue;
        }
        // All threads of a block evaluate __syncthreads alike, so all are at the same one.
        let other = at.iter().copied().find(|warp| {
            waits[*warp].is_some_and(|wait| wait.source != first.source && wait.threads.is_none() && wait.is_aligned)
        });
        if let (Some(warp), None) = (other, first.threads) {
            let lines =
                [Some(first), waits[warp]].map(|wait| wait.map_or(0, |wait| kernel.sources[wait.source as usize].line));
            let text = format!(
                "warps {} and {warp} meet at different barriers: PTX lines {} and {}",
                at[0], lines[0], lines[1]
            );
            return Err((
                warp,
                Fault { source: waits[warp].map(|wait| wait.source), ..Fault::new(FaultKind::Barrier, text) },
            ));
        }
        state.arrivals[id] = 0;
        for warp in at {
            waits[warp] = None;
            warps[warp].release();
        }
        is_released = true;
    }
    Ok(is_released)
}

/// No warp can go on.
fn stuck(kernel: &Kernel, waits: &[Option<Wait>], state: &BlockState) -> (usize, Fault) {
    let mut text = String::from("no warp can go on:");
    for (warp, wait) in waits.iter().enumerate() {
        let Some(wait) = wait else { continue };
        let line = kernel.sources[wait.source as usize].line;
        let arrived = waits.iter().flatten().filter(|other| other.id == wait.id).count() as u32 * 32;
        let wanted = wait.threads.map_or("all threads".into(), |threads| format!("{threads} threads"));
        let arrived = arrived + state.arrivals[wait.id];
        text += &format!(" warp {warp} at barrier {} (PTX line {line}, {arrived} of {wanted});", wait.id);
    }
    let first = waits.iter().position(Option::is_some).unwrap_or(0);
    let source = waits.get(first).copied().flatten().map(|wait| wait.source);
    (first, Fault { source, ..Fault::new(FaultKind::Barrier, text.trim_end_matches(';')) })
}

fn new_warp(launch: &Launch<'_>, block: [u32; 3], warp: usize, threads: usize) -> Warp {
    let [x, y, _] = launch.shape.block;
    let thread = |lane: usize| (warp * 32 + lane) as u32;
    let per_lane = |value: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| value(thread(lane)));
    let special = |register: Special| -> [u32; 32] {
        match register {
            Special::Thread(0) => per_lane(&|thread| thread % x),
            Special::Thread(1) => per_lane(&|thread| thread / x % y),
            Special::Thread(_) => per_lane(&|thread| thread / x / y),
            Special::Threads(axis) => [launch.shape.block[axis]; 32],
            Special::Block(axis) => [block[axis]; 32],
            Special::Blocks(axis) => [launch.shape.grid[axis]; 32],
            Special::Lane => per_lane(&|thread| thread % 32),
            Special::Warp => [warp as u32; 32],
            Special::Warps => [threads.div_ceil(32) as u32; 32],
            Special::MaskEqual => per_lane(&|thread| 1 << (thread % 32)),
            Special::MaskLess => per_lane(&|thread| (1 << (thread % 32)) - 1),
            Special::MaskLessOrEqual => per_lane(&|thread| u32::MAX >> (31 - thread % 32)),
            Special::MaskGreater => per_lane(&|thread| !(u32::MAX >> (31 - thread % 32))),
            Special::MaskGreaterOrEqual => per_lane(&|thread| u32::MAX << (thread % 32)),
            Special::DynamicShared => [launch.shape.shared_bytes; 32],
            Special::TotalShared => [launch.shape.shared_bytes + launch.kernel.shared_bytes as u32; 32],
            Special::Multiprocessor => [0; 32],
            Special::Multiprocessors => [1; 32],
        }
    };
    let lanes = (threads - warp * 32).min(32);
    let live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
    Warp::new(Registers::new(launch.kernel, special), live, launch.kernel.local_bytes)
}
