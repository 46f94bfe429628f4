//! The budget of a template: it pays for every element that it visits, compares, writes or copies.
//!
//! Values are made by builders that pay, and a list shows its elements to those who pay. So no value is made, read or
//! written without steps, and the memory of a template is bounded by its steps, too.

use std::cell::Cell;

/// Units of a step: a byte that is read is one.
const UNITS_PER_STEP: u64 = 64;
/// Units of a byte whose letter is looked at.
const UNITS_PER_LETTER: u64 = 8;
/// Units of a byte that is written, whose text may be kept.
const UNITS_PER_WRITTEN_BYTE: u64 = 2;

/// Most lists and dictionaries within each other.
pub(in crate::chat) const MOST_DEPTH: u16 = 200;
/// Most bytes of a text.
pub(in crate::chat) const MOST_BYTES: usize = 16 << 20;

/// The end of a template before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::chat) enum Fault {
    /// It has no steps left.
    Steps,
    /// It refuses, or asks for something that is not there; with the line, where it is known.
    Says { text: String, line: Option<usize> },
}

impl Fault {
    /// The same in `line`, unless it has a line.
    pub(super) fn at(self, own: usize) -> Fault {
        match self {
            Fault::Says { text, line: None } => Fault::Says { text, line: Some(own) },
            Fault::Says { .. } | Fault::Steps => self,
        }
    }
}

/// A fault that has no line yet.
pub(super) fn fault(text: impl Into<String>) -> Fault {
    Fault::Says { text: text.into(), line: None }
}

/// Steps that are left.
#[derive(Debug)]
pub(in crate::chat) struct Meter {
    units: Cell<u64>,
}

impl Meter {
    /// A budget of `steps`.
    pub(in crate::chat) fn new(steps: u64) -> Meter {
        Meter { units: Cell::new(steps.saturating_mul(UNITS_PER_STEP)) }
    }

    /// Steps that are left.
    pub(in crate::chat) fn steps(&self) -> u64 {
        self.units.get() / UNITS_PER_STEP
    }

    /// Pays for `count` elements.
    pub(super) fn step(&self, count: usize) -> Result<(), Fault> {
        self.pay((count as u64).saturating_mul(UNITS_PER_STEP))
    }

    /// Pays for `count` bytes that are read.
    pub(super) fn read(&self, count: usize) -> Result<(), Fault> {
        self.pay(count as u64)
    }

    /// Pays for `count` bytes whose letters are looked at one by one.
    pub(super) fn letters(&self, count: usize) -> Result<(), Fault> {
        self.pay((count as u64).saturating_mul(UNITS_PER_LETTER))
    }

    /// Pays for `count` bytes that are written.
    pub(super) fn write(&self, count: usize) -> Result<(), Fault> {
        self.pay((count as u64).saturating_mul(UNITS_PER_WRITTEN_BYTE))
    }

    fn pay(&self, units: u64) -> Result<(), Fault> {
        match self.units.get().checked_sub(units) {
            Some(left) => {
                self.units.set(left);
                Ok(())
            }
            None => {
                self.units.set(0);
                Err(Fault::Steps)
            }
        }
    }
}
