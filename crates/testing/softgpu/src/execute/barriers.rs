//! Barriers of a block.

use super::fault::{Fault, FaultKind};
use super::shared_async::Departed;

/// Barriers of a block.
pub const BARRIERS: usize = 16;

/// Where a warp waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The barrier.
    pub id: usize,
    /// Threads that it waits for; without a number, all of the block.
    pub threads: Option<u32>,
    /// The instruction among the sources.
    pub source: u32,
    /// Whether all lanes must be at the same instruction.
    pub is_aligned: bool,
}

impl Wait {
    /// A wait at barrier `id` for `threads`.
    ///
    /// # Errors
    /// A barrier that a block does not have; threads that are not whole warps.
    pub fn new(id: u32, threads: Option<u32>, source: u32, is_aligned: bool) -> Result<Wait, Fault> {
        if id as usize >= BARRIERS {
            return Err(Fault::new(FaultKind::Invalid, format!("barrier {id}; a block has barriers 0 to 15")));
        }
        if let Some(threads) = threads.filter(|threads| threads % 32 != 0 || *threads == 0) {
            let text = format!("a barrier for {threads} threads; it must be a multiple of 32");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        Ok(Wait { id: id as usize, threads, source, is_aligned })
    }
}

/// Warps that have arrived without waiting, by barrier: what each knew.
pub type Arrivals = [Vec<Departed>; BARRIERS];
