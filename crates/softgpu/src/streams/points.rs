//! Points in the work of streams, which events name.

use std::collections::HashMap;
use std::time::Instant;

/// A point in the work of a stream. An event that is recorded again names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point(u64);

/// All points.
#[derive(Debug, Default)]
pub struct Points {
    next: u64,
    reached: HashMap<Point, Instant>,
}

impl Points {
    /// A new point that is not reached.
    pub fn add(&mut self) -> Point {
        self.next += 1;
        Point(self.next)
    }

    /// Marks a point as reached, now.
    pub fn reach(&mut self, point: Point) {
        self.reached.insert(point, Instant::now());
    }

    /// When a point was reached.
    pub fn reached(&self, point: Point) -> Option<Instant> {
        self.reached.get(&point).copied()
    }
}
