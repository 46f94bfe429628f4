//! Allocations, each with bounds of its own.

use super::shadow::Shadow;
use crate::ptx::Space;

/// The first address, and the multiple at which allocations begin.
const FIRST: u64 = 0x7_0000_0000;
const STEP: u64 = 2 << 20;

/// All allocations.
#[derive(Debug, Default)]
pub struct Global {
    /// By address.
    allocations: Vec<Allocation>,
    next: u64,
    used: u64,
}

/// A range of addresses that is backed with memory.
#[derive(Debug)]
pub struct Allocation {
    /// Its first address.
    pub start: u64,
    pub bytes: Vec<u8>,
    /// Whether kernels may only read it.
    pub is_constant: bool,
    /// Whether it is a variable of a module.
    pub is_module: bool,
    /// The last accesses.
    pub shadow: Shadow,
}

impl Allocation {
    /// The offset of `bytes` from `address` on, if all are inside.
    pub fn offset_of(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        (offset.checked_add(bytes)? <= self.bytes.len()).then_some(offset)
    }
}

impl Global {
    /// Bytes of all allocations.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Makes an allocation of zeros, far from the others.
    pub fn allocate(&mut self, bytes: usize) -> u64 {
        let start = self.reserve(bytes);
        self.back(start, bytes);
        start
    }

    /// Takes a range of addresses without memory.
    pub fn reserve(&mut self, bytes: usize) -> u64 {
        let start = FIRST + self.next;
        // At least one step without memory is after each.
        self.next += (bytes as u64).div_ceil(STEP).max(1) * STEP + STEP;
        start
    }

    /// Backs reserved addresses.
    pub fn back(&mut self, start: u64, bytes: usize) {
        self.used += bytes as u64;
        let place = self.allocations.partition_point(|allocation| allocation.start < start);
        let allocation = Allocation {
            start,
            bytes: vec![0; bytes],
            is_constant: false,
            is_module: false,
            shadow: Shadow::default(),
        };
        self.allocations.insert(place, allocation);
    }

    /// Makes the allocation of a module's variable.
    pub fn allocate_variable(&mut self, bytes: usize, space: Space) -> u64 {
        let start = self.allocate(bytes);
        if let Some(allocation) = self.allocations.iter_mut().find(|allocation| allocation.start == start) {
            allocation.is_module = true;
            allocation.is_constant = space == Space::Const;
        }
        start
    }

    /// Frees the allocation that begins at `start`; `false` if no allocation begins there.
    pub fn free(&mut self, start: u64) -> bool {
        let Ok(place) = self.allocations.binary_search_by_key(&start, |allocation| allocation.start) else {
            return false;
        };
        self.used -= self.allocations.remove(place).bytes.len() as u64;
        true
    }

    /// The number of the allocation that holds `bytes` from `address` on.
    pub fn find(&self, address: u64, bytes: usize) -> Option<usize> {
        let following = self.allocations.partition_point(|allocation| allocation.start <= address);
        let index = following.checked_sub(1)?;
        self.allocations[index].offset_of(address, bytes).map(|_| index)
    }

    /// An allocation by its number.
    pub fn get(&self, index: usize) -> Option<&Allocation> {
        self.allocations.get(index)
    }

    /// An allocation by its number.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Allocation> {
        self.allocations.get_mut(index)
    }

    /// The bytes from `address` on.
    pub fn range(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        let allocation = self.allocations.get(self.find(address, bytes)?)?;
        let offset = allocation.offset_of(address, bytes)?;
        Some(&allocation.bytes[offset..offset + bytes])
    }

    /// The bytes from `address` on.
    pub fn range_mut(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let index = self.find(address, bytes)?;
        let allocation = self.allocations.get_mut(index)?;
        let offset = allocation.offset_of(address, bytes)?;
        Some(&mut allocation.bytes[offset..offset + bytes])
    }

    /// A description of the allocation nearest to an address without memory.
    pub fn nearest(&self, address: u64) -> String {
        let following = self.allocations.partition_point(|allocation| allocation.start <= address);
        let below = following.checked_sub(1).and_then(|index| self.allocations.get(index));
        let above = self.allocations.get(following);
        let described = |allocation: &Allocation| {
            let bytes = allocation.bytes.len();
            let start = allocation.start;
            let end = start + bytes as u64;
            if address < start {
                format!("{} bytes before the allocation {start:#x} of {bytes} bytes", start - address)
            } else if address < end {
                format!("{} bytes from the end of the allocation {start:#x} of {bytes} bytes", end - address)
            } else {
                format!("{} bytes past the end of the allocation {start:#x} of {bytes} bytes", address - end)
            }
        };
        let distance = |allocation: &&Allocation| {
            let end = allocation.start + allocation.bytes.len() as u64;
            allocation.start.saturating_sub(address).max(address.saturating_sub(end))
        };
        let nearest = [below, above].into_iter().flatten().min_by_key(distance);
        nearest.map_or("there is no allocation".into(), described)
    }
}
