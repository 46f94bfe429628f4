//! The window of each space in all addresses.

use crate::ptx::Space;

/// The first address of shared memory.
const SHARED: u64 = 1 << 56;
/// The first address of a thread's local memory.
const LOCAL: u64 = 2 << 56;
/// The first address of the arguments.
const PARAM: u64 = 3 << 56;

/// The first address of a space.
pub fn window_start(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global | Space::Const => 0,
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
    }
}

/// The space of an address among all, and the address there.
pub fn resolved(address: u64) -> (Space, u64) {
    let offset = address & ((1 << 56) - 1);
    match address >> 56 {
        1 => (Space::Shared, offset),
        2 => (Space::Local, offset),
        3 => (Space::Param, offset),
        _ => (Space::Global, address),
    }
}
