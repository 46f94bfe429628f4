//! Runs a launch: all blocks of a kernel.

use super::block::run_block;
use super::fault::Fault;
use super::global_order::BlockOrder;
use super::instruction_sets::InstructionSet;
use super::run::{Launch, Run};
use super::runs::Runs;
use super::spare::SpareRegisters;
use crate::memory::global::Global;

/// Letters of an instruction in the text of a fault.
const MAX_TEXT: usize = 160;

/// Runs all blocks, one after the other, with registers in the room of `spare`; returns how often each basic block was
/// run by a warp.
///
/// # Errors
/// The first fault, with the kernel, the line and the thread in its text.
pub fn run(launch: &Launch<'_>, global: &mut Global, spare: &mut SpareRegisters) -> Result<Vec<u64>, Fault> {
    spare.begin_launch();
    let [x, y, z] = launch.shape.grid;
    let mut run = Run {
        launch,
        global,
        left: launch.limits.warp_instructions,
        spare,
        runs: Runs::default(),
        last: 0,
        blocks: BlockOrder::default(),
        counts: vec![0; launch.kernel.blocks.len()],
        set: InstructionSet::widest(),
    };
    let mut number = 0;
    for block_z in 0..z {
        for block_y in 0..y {
            for block_x in 0..x {
                let block = [block_x, block_y, block_z];
                number += 1;
                run_block(&mut run, block, number).map_err(|(warp, fault)| located(launch, block, warp, fault))?;
            }
        }
    }
    Ok(run.counts)
}

/// The first part of an instruction with many operands.
fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_TEXT {
        text.into()
    } else {
        text.chars().take(MAX_TEXT).chain("...".chars()).collect()
    }
}

/// The fault with the kernel, the line, the block and the thread in its text.
fn located(launch: &Launch<'_>, block: [u32; 3], warp: usize, fault: Fault) -> Fault {
    let mut text = format!("kernel {}", launch.kernel.name);
    if let Some(source) = fault.source.and_then(|source| launch.kernel.sources.get(source as usize)) {
        text += &format!(", PTX line {} `{}`", source.line, shortened(&source.text));
    }
    text += &format!(", block ({}, {}, {})", block[0], block[1], block[2]);
    match fault.lane {
        Some(lane) => {
            let [x, y, _] = launch.shape.block;
            let thread = (warp * 32 + lane) as u32;
            text += &format!(", thread ({}, {}, {})", thread % x, thread / x % y, thread / x / y);
        }
        None => text += &format!(", warp {warp}"),
    }
    Fault { text: format!("{text}: {}", fault.text), ..fault }
}
