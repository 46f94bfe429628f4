//! Copies to shared memory that a thread starts and later waits for. Each reads and writes as late as it may: when it
//! is waited for.

use super::fault::Fault;
use super::memory::Memory;
use super::registers::{LANES, Lanes, Registers, is_set, lanes_in};
use super::transfer::addresses;
use crate::code::{AsyncCopy, CopyGroup};
use crate::ptx::Space;

/// Copies of a warp's threads that have not ended.
#[derive(Debug, Default)]
pub struct AsyncCopies {
    copies: Vec<Copy>,
    /// Groups that each thread has ended.
    committed: [u32; LANES],
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    lane: usize,
    /// The group's number, once it is known.
    group: Option<u32>,
    to: u64,
    from: u64,
    bytes: usize,
    read_bytes: usize,
}

impl AsyncCopies {
    /// Starts a copy in each of `lanes`.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn start(
        &mut self,
        registers: &Registers,
        memory: &mut Memory<'_>,
        lanes: Lanes,
        copy: &AsyncCopy,
    ) -> Result<(), Fault> {
        let (to, from) = (addresses(registers, copy.to), addresses(registers, copy.from));
        let read = copy.read_bytes.map(|row| registers.small[usize::from(row)]);
        let bytes = usize::from(copy.bytes);
        for lane in lanes_in(lanes) {
            let read_bytes = read.map_or(bytes, |read| (read[lane] as usize).min(bytes));
            memory.check(Space::Shared, to[lane], bytes, bytes, lane)?;
            memory.check(Space::Global, from[lane], read_bytes, bytes, lane)?;
            self.copies.push(Copy { lane, group: None, to: to[lane], from: from[lane], bytes, read_bytes });
        }
        Ok(())
    }

    /// Ends groups, or waits for them.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn group(&mut self, memory: &mut Memory<'_>, lanes: Lanes, group: CopyGroup) -> Result<(), Fault> {
        match group {
            CopyGroup::Commit => {
                for copy in self.copies.iter_mut().filter(|copy| copy.group.is_none() && is_set(lanes, copy.lane)) {
                    copy.group = Some(self.committed[copy.lane]);
                }
                for lane in lanes_in(lanes) {
                    self.committed[lane] += 1;
                }
                Ok(())
            }
            CopyGroup::Wait(open) => {
                let committed = self.committed;
                self.end(memory, |copy| {
                    is_set(lanes, copy.lane) && copy.group.is_some_and(|group| group + open < committed[copy.lane])
                })
            }
            CopyGroup::WaitAll => self.end(memory, |copy| is_set(lanes, copy.lane)),
        }
    }

    fn end(&mut self, memory: &mut Memory<'_>, is_due: impl Fn(&Copy) -> bool) -> Result<(), Fault> {
        let (due, rest): (Vec<Copy>, Vec<Copy>) = self.copies.iter().partition(|copy| is_due(copy));
        self.copies = rest;
        for copy in due {
            let mut bytes = [0; 16];
            if copy.read_bytes > 0 {
                let from = memory.read_unaligned(Space::Global, copy.from, copy.read_bytes, copy.lane)?;
                bytes[..copy.read_bytes].copy_from_slice(from);
            }
            memory.write(Space::Shared, copy.to, &bytes[..copy.bytes], copy.lane)?;
        }
        Ok(())
    }
}
