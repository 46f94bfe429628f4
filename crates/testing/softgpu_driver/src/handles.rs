//! Things that a caller names by handles.

use std::collections::HashMap;

/// Things by their handles, which no other thing ever has.
#[derive(Debug)]
pub struct Handles<T> {
    last: u64,
    things: HashMap<u64, T>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles { last: 0, things: HashMap::new() }
    }
}

impl<T> Handles<T> {
    /// Keeps a thing, and returns its handle: not 0.
    pub fn add(&mut self, thing: T) -> u64 {
        self.last += 1;
        self.things.insert(self.last, thing);
        self.last
    }

    /// The thing of a handle.
    pub fn get(&self, handle: u64) -> Option<&T> {
        self.things.get(&handle)
    }

    /// The thing of a handle.
    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        self.things.get_mut(&handle)
    }

    /// All things.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.things.values()
    }

    /// Removes the thing of a handle.
    pub fn remove(&mut self, handle: u64) -> Option<T> {
        self.things.remove(&handle)
    }
}
