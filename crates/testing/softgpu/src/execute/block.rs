//! A block: its memory, and its warps in turns.

use super::barriers::{Arrivals, BARRIERS, Wait};
use super::cluster_barrier::ClusterBarrier;
use super::fault::{Fault, FaultKind};
use super::phase_barriers::PhaseBarriers;
use super::run::{Launch, Run};
use super::shared::Shared;
use super::spare::SpareRegisters;
use super::warp::{Awaited, Progress, Warp};
use super::warpgroups::{WARPS, WarpgroupSteps};
use crate::code::Kernel;
use crate::ptx::Special;

/// The state that the warps of a block share.
#[derive(Debug)]
pub struct BlockState {
    /// Its number in the launch, from 1 on.
    pub number: u32,
    /// Its shared memory.
    pub shared: Shared,
    /// Warps that have arrived at barriers without waiting.
    pub arrivals: Arrivals,
    /// Its mbarriers.
    pub barriers: PhaseBarriers,
    /// The barrier of its cluster.
    pub cluster: ClusterBarrier,
    /// The products of each of its warpgroups.
    pub warpgroups: Vec<WarpgroupSteps>,
    /// Instructions that needed more than registers and have not waited.
    pub steps: u64,
}

/// Instructions that a warp runs before another one has its turn.
const TURN: u64 = 4096;

/// Runs a block to its end. Returns the warp of a fault with it.
pub fn run_block(run: &mut Run<'_>, index: [u32; 3], number: u32) -> Result<(), (usize, Fault)> {
    let launch = run.launch;
    let shared = launch.kernel.shared_bytes + launch.shape.shared_bytes as usize;
    let threads = launch.shape.block.iter().product::<u32>() as usize;
    let count = threads.div_ceil(32);
    let mut state = new_state(launch, number, shared, count);
    let mut warps: Vec<Warp> = (0..count).map(|warp| new_warp(launch, index, warp, threads, run.spare)).collect();
    let mut waits: Vec<Option<Wait>> = vec![None; count];
    let mut asks: Vec<Option<(Awaited, u32)>> = vec![None; count];
    let mut has_ended = vec![false; count];
    run.blocks.begin_block();
    loop {
        let mut is_any = false;
        let before = (run.left, state.steps);
        for number in 0..count {
            if has_ended[number] || waits[number].is_some() {
                continue;
            }
            asks[number] = None;
            match warps[number].run(run, &mut state, TURN).map_err(|fault| (number, fault))? {
                Progress::Ended => {
                    has_ended[number] = true;
                    state.cluster.leave(number);
                    is_any = true;
                }
                Progress::AtBarrier(wait) => {
                    waits[number] = Some(wait);
                    is_any = true;
                }
                Progress::Asks(awaited, source) => asks[number] = Some((awaited, source)),
                Progress::Paused => is_any = true,
            }
        }
        let is_released = release(launch.kernel, &mut state, &mut warps, &mut waits, &has_ended)?;
        if has_ended.iter().all(|ended| *ended) {
            end(run, &mut state, &mut warps)?;
            warps.into_iter().for_each(|warp| run.spare.keep(warp.registers));
            return Ok(());
        }
        let has_moved = before != (run.left, state.steps);
        if !is_any && !is_released && !has_moved {
            return Err(stuck(launch.kernel, &waits, &asks, &state));
        }
    }
}

fn new_state(launch: &Launch<'_>, number: u32, shared_bytes: usize, warps: usize) -> BlockState {
    let mut shared = Shared::new(shared_bytes, warps);
    if launch.kernel.has_asynchronous {
        shared = shared.with_asynchronous(warps);
    }
    BlockState {
        number,
        shared,
        arrivals: std::array::from_fn(|_| vec![]),
        barriers: PhaseBarriers::default(),
        cluster: ClusterBarrier::new(warps),
        warpgroups: (0..warps.div_ceil(WARPS)).map(|_| WarpgroupSteps::default()).collect(),
        steps: 0,
    }
}

/// All warps have ended.
fn end(run: &mut Run<'_>, state: &mut BlockState, warps: &mut [Warp]) -> Result<(), (usize, Fault)> {
    for (number, warp) in warps.iter_mut().enumerate() {
        warp.end_stores(run, state).map_err(|fault| (number, fault))?;
    }
    match state.barriers.unfinished() {
        None => Ok(()),
        Some(place) => {
            let text = format!("the block ends, and nobody waited for {}", state.barriers.described(place));
            Err((0, Fault::new(FaultKind::Barrier, text)))
        }
    }
}

/// Lets warps continue whose barrier is complete.
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
            Some(threads) => (at.len() + state.arrivals[id].len()) as u32 * 32 >= threads,
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
        let departed = std::mem::take(&mut state.arrivals[id]);
        state.shared.synchronize(&at, &departed);
        for warp in at {
            waits[warp] = None;
            warps[warp].release();
        }
        is_released = true;
    }
    Ok(is_released)
}

/// No warp can continue.
fn stuck(
    kernel: &Kernel,
    waits: &[Option<Wait>],
    asks: &[Option<(Awaited, u32)>],
    state: &BlockState,
) -> (usize, Fault) {
    let mut text = String::from("no warp can continue:");
    let line = |source: u32| kernel.sources[source as usize].line;
    for (warp, wait) in waits.iter().enumerate() {
        let Some(wait) = wait else { continue };
        let arrived = waits.iter().flatten().filter(|other| other.id == wait.id).count() as u32 * 32;
        let wanted = wait.threads.map_or("all threads".into(), |threads| format!("{threads} threads"));
        let arrived = arrived + state.arrivals[wait.id].len() as u32 * 32;
        let line = line(wait.source);
        text += &format!(" warp {warp} at barrier {} (PTX line {line}, {arrived} of {wanted});", wait.id);
    }
    for (warp, awaited) in asks.iter().enumerate() {
        let Some((awaited, source)) = awaited else { continue };
        let awaited = match awaited {
            Awaited::Phase(place) => state.barriers.described(*place),
            Awaited::Cluster => "the barrier of its cluster".into(),
            Awaited::Warpgroup => "the other warps of its warpgroup to run the same products".into(),
        };
        text += &format!(" warp {warp} (PTX line {}) waits for {awaited};", line(*source));
    }
    let asking = asks.iter().position(Option::is_some);
    let first = waits.iter().position(Option::is_some).or(asking).unwrap_or(0);
    let source = waits.get(first).copied().flatten().map(|wait| wait.source);
    let source = source.or(asks.get(first).copied().flatten().map(|(_, source)| source));
    (first, Fault { source, ..Fault::new(FaultKind::Barrier, text.trim_end_matches(';')) })
}

fn new_warp(launch: &Launch<'_>, block: [u32; 3], warp: usize, threads: usize, spare: &mut SpareRegisters) -> Warp {
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
            Special::Multiprocessor | Special::ClusterBlock | Special::Clock => [0; 32],
            Special::Multiprocessors | Special::ClusterBlocks => [1; 32],
        }
    };
    let lanes = (threads - warp * 32).min(32);
    let live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
    let warp = Warp::new(warp, spare.take(launch.kernel, special), live, launch.kernel.local_bytes);
    if launch.kernel.has_warpgroups { warp.with_order(launch.kernel) } else { warp }
}
