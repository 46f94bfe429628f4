//! Lookup of rows of a table that is sharded by rows over ranks (vocabulary-parallel embedding).

use device::Write;

use crate::accumulate::{add_row, add_scaled_row};
use crate::lanes::{Kernel, Lanes, Stored};
use crate::view::{MatMut, MatRef};

/// The local row of `token` in a table of `rows` rows from `first_row` on, or `None` when another rank has it.
fn local_row(token: i32, first_row: usize, rows: usize) -> Option<usize> {
    usize::try_from(token).ok()?.checked_sub(first_row).filter(|&row| row < rows)
}

/// `out[T,D] = table[token - first_row]`, or zeros for tokens of other ranks; assigned or accumulated.
/// The sum of `out` over the ranks that share the table is the embedding.
pub struct EmbeddingLookup<'a, E = f32> {
    /// `[T]`
    pub tokens: &'a [i32],
    /// `[V/tp, D]`
    pub table: MatRef<'a, E>,
    /// Global index of the table's first row.
    pub first_row: usize,
    /// `[T, D]`
    pub out: MatMut<'a, E>,
    /// Whether `out` is assigned or added to.
    pub write: Write,
}

impl<E: Stored> Kernel for EmbeddingLookup<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!(self.tokens.len(), self.out.rows(), "one row per token");
        for (row, &token) in self.tokens.iter().enumerate() {
            let out = self.out.row_mut(row);
            match (local_row(token, self.first_row, self.table.rows()), self.write) {
                (Some(local), Write::Assign) => out.copy_from_slice(self.table.row(local)),
                (Some(local), Write::Accumulate) => add_row::<L>(self.table.row(local), out),
                (None, Write::Assign) => out.fill(E::zeroed()),
                (None, Write::Accumulate) => {}
            }
        }
    }
}

/// `dtable[token - first_row] += scale * dy[T,D]` for the tokens of this rank but one, in ascending order of the
/// tokens' places.
pub struct EmbeddingBackward<'a, E = f32> {
    /// `[T]`
    pub tokens: &'a [i32],
    /// `[T, D]`
    pub dy: MatRef<'a, E>,
    /// Factor of the gradient; with 1 it is added as it is.
    pub scale: f32,
    /// Global index of the table's first row.
    pub first_row: usize,
    /// The row of the whole table that gets nothing.
    pub untrained: Option<usize>,
    /// `[V/tp, D]`, accumulated.
    pub dtable: MatMut<'a>,
}

impl<E: Stored> Kernel for EmbeddingBackward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!(self.tokens.len(), self.dy.rows(), "one row per token");
        let untrained = self.untrained.and_then(|row| i32::try_from(row).ok());
        for (row, &token) in self.tokens.iter().enumerate().filter(|(_, token)| Some(**token) != untrained) {
            if let Some(local) = local_row(token, self.first_row, self.dtable.rows()) {
                add_scaled_row::<L>(self.dy.row(row), self.scale, self.dtable.row_mut(local));
            }
        }
    }
}
