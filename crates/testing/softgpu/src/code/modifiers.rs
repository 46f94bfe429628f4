//! The modifiers of an opcode, each of which must be read.

use crate::ptx::{PtxError, Scalar, Statement};

/// The modifiers of one instruction.
#[derive(Debug)]
pub struct Modifiers<'a> {
    statement: &'a Statement,
    read: Vec<bool>,
}

impl<'a> Modifiers<'a> {
    /// The modifiers of `statement`.
    pub fn of(statement: &'a Statement) -> Modifiers<'a> {
        let mut read = vec![false; statement.parts.len()];
        read[0] = true;
        Modifiers { statement, read }
    }

    /// The opcode itself.
    pub fn base(&self) -> &'a str {
        &self.statement.parts[0]
    }

    /// Reads a modifier, and returns whether it is there.
    pub fn takes(&mut self, name: &str) -> bool {
        let place = (0..self.read.len()).find(|index| !self.read[*index] && self.statement.parts[*index] == name);
        if let Some(place) = place {
            self.read[place] = true;
        }
        place.is_some()
    }

    /// Reads the first of `names` that is there.
    pub fn takes_one<T: Copy>(&mut self, names: &[(&str, T)]) -> Option<T> {
        names.iter().find(|(name, _)| self.takes(name)).map(|(_, value)| *value)
    }

    /// Reads all of `names` that are there.
    pub fn pass(&mut self, names: &[&str]) {
        for name in names {
            while self.takes(name) {}
        }
    }

    /// Reads the next type.
    ///
    /// # Errors
    /// None left.
    pub fn scalar(&mut self) -> Result<Scalar, PtxError> {
        for (index, part) in self.statement.parts.iter().enumerate() {
            if let (false, Some(scalar)) = (self.read[index], Scalar::of(part)) {
                self.read[index] = true;
                return Ok(scalar);
            }
        }
        Err(self.unsupported())
    }

    /// An error that names the line and the opcode.
    pub fn unsupported(&self) -> PtxError {
        let opcode = self.statement.opcode();
        let reason = if self.statement.parts.iter().any(|part| part == "approx" || part == "full") {
            "results of approximate instructions are not defined; use a .rn instruction"
        } else {
            "this instruction is not supported"
        };
        PtxError::new(self.statement.line, format!("{opcode}: {reason}"))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// A modifier that was not read.
    pub fn finish(&self) -> Result<(), PtxError> {
        if self.read.iter().all(|read| *read) { Ok(()) } else { Err(self.unsupported()) }
    }
}
