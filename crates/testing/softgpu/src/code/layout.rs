//! Places of variables: parameters, shared and local memory.

use std::collections::HashMap;

use crate::ptx::{Space, Variable};

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its first byte among the parameters.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
}

/// The space and address of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub space: Space,
    pub address: u64,
}

/// The variables that are known at a place.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    places: HashMap<String, Place>,
}

impl Symbols {
    /// Adds a variable.
    pub fn insert(&mut self, name: &str, place: Place) {
        self.places.insert(name.to_string(), place);
    }

    /// The place of a variable.
    pub fn get(&self, name: &str) -> Option<Place> {
        self.places.get(name).copied()
    }
}

/// The next multiple of `align`.
pub fn aligned(offset: usize, align: usize) -> usize {
    offset.div_ceil(align.max(1)) * align.max(1)
}

/// Lays variables of `space` out one after the other, from `offset` on; returns the end. Variables whose size the
/// launch decides are at the end, all at the same place.
pub fn lay_out(variables: &[Variable], space: Space, from: usize, symbols: &mut Symbols) -> usize {
    let mut offset = from;
    let of_space = || variables.iter().filter(|variable| variable.space == space);
    for variable in of_space().filter(|variable| variable.bytes > 0) {
        offset = aligned(offset, variable.align);
        symbols.insert(&variable.name, Place { space, address: offset as u64 });
        offset += variable.bytes;
    }
    let open = || of_space().filter(|variable| variable.bytes == 0);
    if let Some(align) = open().map(|variable| variable.align).max() {
        offset = aligned(offset, align.max(16));
        for variable in open() {
            symbols.insert(&variable.name, Place { space, address: offset as u64 });
        }
    }
    offset
}
