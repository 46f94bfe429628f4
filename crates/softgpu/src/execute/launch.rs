//! A launch: all blocks of a kernel.

use gpu::LaunchShape;

use super::block::run_block;
use super::fault::Fault;
use crate::code::Kernel;
use crate::memory::global::Global;

/// How much a launch may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of all its warps together.
    pub warp_instructions: u64,
}

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Blocks and threads.
    pub shape: LaunchShape,
    /// The bytes of all arguments, each at its place.
    pub parameters: Vec<u8>,
    /// How much it may do.
    pub limits: Limits,
}

/// Runs all blocks, one after the other.
///
/// # Errors
/// The first fault, with the kernel, the line and the thread in its text.
pub fn run(launch: &Launch<'_>, global: &mut Global) -> Result<(), Fault> {
    let [x, y, z] = launch.shape.grid;
    let mut left = launch.limits.warp_instructions;
    for block_z in 0..z {
        for block_y in 0..y {
            for block_x in 0..x {
                let block = [block_x, block_y, block_z];
                run_block(launch, global, &mut left, block)
                    .map_err(|(warp, fault)| located(launch, block, warp, fault))?;
            }
        }
    }
    Ok(())
}

/// The fault with the kernel, the line, the block and the thread in its text.
fn located(launch: &Launch<'_>, block: [u32; 3], warp: usize, fault: Fault) -> Fault {
    let mut text = format!("kernel {}", launch.kernel.name);
    if let Some(source) = fault.source.and_then(|source| launch.kernel.sources.get(source as usize)) {
        text += &format!(", PTX line {} `{}`", source.line, source.text);
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
