//! What a pass reads and writes next: rows that lie a whole token apart, which no processor foresees, and which come from
//! memory or from another core's cache. They are asked for while the present block is multiplied.

use device::Element;

use super::query_block::KeyTile;
use super::{AttentionShape, KEYS, QUERIES};
use crate::gemm::ahead::Ahead;
use crate::view::MatRef;

/// A block of queries of one head, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub sequence: usize,
    pub head: usize,
    /// Of the block's first query in the sequence.
    pub position: usize,
}

impl Place {
    /// All blocks, in the order in which passes take them.
    pub fn all(shape: AttentionShape) -> impl Iterator<Item = Place> {
        let positions = move || (0..shape.sequence_length).step_by(QUERIES);
        (0..shape.sequences).flat_map(move |sequence| {
            (0..shape.heads)
                .flat_map(move |head| positions().map(move |position| Place { sequence, head, position }))
        })
    }

    /// The block's rows of `matrix[tokens, heads * head_dim]`.
    pub fn rows<'a, E: Element>(&self, shape: AttentionShape, matrix: MatRef<'a, E>) -> MatRef<'a, E> {
        let AttentionShape { sequence_length: length, head_dim, .. } = shape;
        let queries = QUERIES.min(length - self.position);
        matrix.block(self.sequence * length + self.position, queries, self.head * head_dim, head_dim)
    }
}

/// Which keys of a head have been asked for.
#[derive(Default)]
pub(super) struct KeysAhead {
    head: Option<(usize, usize)>,
    until: usize,
}

impl KeysAhead {
    /// Asks for the keys and values, `rows` of a head, that come after a tile, each once. Those of a head's first tile are asked for at once.
    pub fn ask<E: Element>(&mut self, ahead: &mut Ahead, head: (usize, usize), tile: &KeyTile, rows: [MatRef<'_, E>; 2]) {
        let is_first = self.head != Some(head);
        if is_first {
            *self = Self { head: Some(head), until: tile.keys.start };
        }
        let until = (tile.keys.end + KEYS).min(rows[0].rows());
        if until > self.until {
            for matrix in rows {
                ahead.add(matrix.block(self.until, until - self.until, 0, matrix.cols()));
            }
            self.until = until;
        }
        if is_first {
            ahead.ask_for_all();
        }
    }
}
