//! Logits from the arena of a rank: the columns of all tensor-parallel ranks put side by side, padding left out.

use std::ops::Range;

use config::Microbatch;
use device::DeviceError;

use crate::worker::Worker;

impl Worker<'_> {
    /// Logits `[rows, V]`, row-major, of `rows` of the generating program that has just run on this rank, which
    /// computes the head.
    ///
    /// # Errors
    /// The device's.
    pub fn read_logits(&self, rows: Range<usize>) -> Result<Vec<f32>, DeviceError> {
        let (logits, vocabulary) = (self.logits(Microbatch(0)), self.position.setup.model.vocabulary);
        let (tokens, columns) = (self.position.shape.tokens(), logits.cols);
        let mut values = vec![0.0f32; rows.len() * vocabulary];
        let mut part = vec![0.0f32; rows.len() * columns];
        for (position, first) in (0..vocabulary).step_by(columns).enumerate() {
            let own = position * tokens + rows.start..position * tokens + rows.end;
            self.ports.device.read(logits.rows_of(own), bytemuck::cast_slice_mut(&mut part))?;
            let valid = columns.min(vocabulary - first);
            for (row, from) in values.chunks_exact_mut(vocabulary).zip(part.chunks_exact(columns)) {
                row[first..first + valid].copy_from_slice(&from[..valid]);
            }
        }
        Ok(values)
    }
}
