//! Points in the work of streams, which events name.

use std::collections::HashMap;
use std::time::Instant;

use super::clocks::Clock;

/// A point in the work of a stream. An event that is recorded again names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point(u64);

/// Points of all streams, with the time and the clock at which each was reached.
#[derive(Debug, Default)]
pub struct Points {
    next: u64,
    reached: HashMap<Point, (Instant, Clock)>,
}

impl Points {
    /// A new point that is not reached.
    pub fn add(&mut self) -> Point {
        self.next += 1;
        Point(self.next)
    }

    /// Marks a point as reached, now, by a stream with `clock`.
    pub fn reach(&mut self, point: Point, clock: Clock) {
        self.reached.insert(point, (Instant::now(), clock));
    }

    /// The work that comes before a point that is reached.
    pub fn clock(&self, point: Point) -> Option<&Clock> {
        self.reached.get(&point).map(|(_, clock)| clock)
    }

    /// When a point was reached.
    pub fn reached(&self, point: Point) -> Option<Instant> {
        self.reached.get(&point).map(|(time, _)| *time)
    }
}
