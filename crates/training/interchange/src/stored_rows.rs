//! Where the rows of a parameter are in the tensor that holds it.

use mesh::Region;

/// A part of a stored tensor that is one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRows {
    /// Name of the stored tensor, without the prefix that some files leave out.
    pub tensor: String,
    /// Shape of the stored tensor.
    pub shape: Vec<usize>,
    pub rows: Rows,
    /// Which way it is.
    pub orientation: Orientation,
    /// The index in the first dim of a tensor that stacks matrices; `None` where it is one matrix or vector.
    pub in_stack: Option<usize>,
}

/// Row `r` of the parameter is row `r / block * stride + first + r % block` of the stored tensor, transposed where it
/// is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Rows that are together.
    pub block: usize,
    /// From the first row of one block to that of the next.
    pub stride: usize,
    /// The first row of the first block.
    pub first: usize,
}

/// Which way a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// `[outputs, inputs]`, as parameters are.
    OutputsFirst,
    /// `[inputs, outputs]`: GPT-2's `Conv1D`.
    InputsFirst,
}

/// A run of a parameter's rows that are together, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// First row of the run within the region that was asked for.
    pub offset: usize,
    /// Rows.
    pub len: usize,
    /// The box of the stored tensor; transposed where that is so.
    pub stored: Region,
}

impl StoredRows {
    /// The boxes of the stored tensor that `region` of the parameter consists of, in the order of its rows.
    pub fn runs(&self, region: &Region) -> Vec<Run> {
        let Rows { block, stride, first } = self.rows;
        let (start, end) = (region.start[0], region.start[0] + region.extent[0]);
        let mut runs = vec![];
        let mut row = start;
        while row < end {
            let len = (block - row % block).min(end - row);
            let mut stored = region.clone();
            (stored.start[0], stored.extent[0]) = (row / block * stride + first + row % block, len);
            if self.orientation == Orientation::InputsFirst {
                stored.start.reverse();
                stored.extent.reverse();
            }
            if let Some(index) = self.in_stack {
                stored.start.insert(0, index);
                stored.extent.insert(0, 1);
            }
            runs.push(Run { offset: row - start, len, stored });
            row += len;
        }
        runs
    }
}

/// Boxes of whole rows that cover a tensor of `shape`, each of at most `chunk_len` elements, or of one row where that
/// has more.
pub fn row_chunks(shape: &[usize], chunk_len: usize) -> impl Iterator<Item = Region> + '_ {
    let cols: usize = shape[1..].iter().product();
    let rows = (chunk_len / cols.max(1)).max(1);
    (0..shape[0]).step_by(rows).map(move |start| {
        let mut region = Region::whole(shape);
        (region.start[0], region.extent[0]) = (start, rows.min(shape[0] - start));
        region
    })
}

/// `values` of a matrix `[rows, cols]`, row-major, as `[cols, rows]`.
pub fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|col| (0..rows).map(move |row| values[row * cols + col])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_rows(rows: Rows, orientation: Orientation) -> StoredRows {
        StoredRows { tensor: "t".into(), shape: vec![], rows, orientation, in_stack: None }
    }

    fn region(start: [usize; 2], extent: [usize; 2]) -> Region {
        Region { start: start.to_vec(), extent: extent.to_vec() }
    }

    #[test]
    fn rows_of_heads_lie_between_those_of_others() {
        // Keys of heads of width 4 in rows of query | key | value.
        let stored_rows = stored_rows(Rows { block: 4, stride: 12, first: 4 }, Orientation::OutputsFirst);
        let runs = stored_rows.runs(&region([2, 5], [7, 3]));
        let expected = [(0, 2, [6, 5], [2, 3]), (2, 4, [16, 5], [4, 3]), (6, 1, [28, 5], [1, 3])];
        let expected = expected.map(|(offset, len, start, extent)| Run { offset, len, stored: region(start, extent) });
        assert_eq!(runs, expected);
    }

    #[test]
    fn rows_of_a_stack_have_the_index_of_their_matrix() {
        // The second half of the rows of matrix 3.
        let rows = Rows { block: 5, stride: 10, first: 5 };
        let stored_rows = StoredRows { in_stack: Some(3), ..stored_rows(rows, Orientation::OutputsFirst) };
        let stored = Region { start: vec![3, 6, 2], extent: vec![1, 4, 7] };
        assert_eq!(stored_rows.runs(&region([1, 2], [4, 7])), [Run { offset: 0, len: 4, stored }]);
    }

    #[test]
    fn transposed_rows_are_columns() {
        let stored_rows = stored_rows(Rows { block: 6, stride: 6, first: 12 }, Orientation::InputsFirst);
        assert_eq!(
            stored_rows.runs(&region([1, 0], [3, 8])),
            [Run { offset: 0, len: 3, stored: region([0, 13], [8, 3]) }]
        );
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
