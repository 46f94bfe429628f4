//! Views of matrices inside larger buffers: rows of `cols` elements that start `row_stride` elements apart.
//!
//! A mutable view may share its rows' gaps with other views ([`MatMut::split_at_col`]: query, key and value are side by
//! side in one buffer), which slices cannot say. The views are therefore pointers with the lifetime of the slice that
//! they were made from. The kernels read and write through these pointers, inside the bounds that are checked here.

use std::marker::PhantomData;

use device::Element;

/// A matrix `[rows, cols]` to read.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, E = f32> {
    start: *const E,
    rows: usize,
    cols: usize,
    row_stride: usize,
    lifetime: PhantomData<&'a [E]>,
}

/// A matrix `[rows, cols]` to write.
#[derive(Debug)]
pub struct MatMut<'a, E = f32> {
    start: *mut E,
    rows: usize,
    cols: usize,
    row_stride: usize,
    lifetime: PhantomData<&'a mut [E]>,
}

// SAFETY: a MatRef is a shared borrow of values, like &[E].
unsafe impl<E: Element> Send for MatRef<'_, E> {}
// SAFETY: a MatRef is a shared borrow of values, like &[E].
unsafe impl<E: Element> Sync for MatRef<'_, E> {}
// SAFETY: a MatMut is an exclusive borrow of its rows' elements, like &mut [E].
unsafe impl<E: Element> Send for MatMut<'_, E> {}
// SAFETY: a MatMut is an exclusive borrow of its rows' elements, like &mut [E]; sharing it gives no write access.
unsafe impl<E: Element> Sync for MatMut<'_, E> {}

/// Asserts that `rows` rows of `cols` elements, `row_stride` apart, are inside `len` elements.
fn assert_inside(len: usize, rows: usize, cols: usize, row_stride: usize) {
    assert!(row_stride >= cols, "rows of {cols} elements overlap at a row stride of {row_stride}");
    if rows > 0 && cols > 0 {
        let needed = (rows - 1) * row_stride + cols;
        assert!(needed <= len, "{rows} rows of {cols}, {row_stride} apart, need {needed} elements of {len}");
    }
}

impl<'a, E: Element> MatRef<'a, E> {
    /// The matrix whose row `r` is `data[r * row_stride..][..cols]`. Panics if a row is outside `data` or
    /// `row_stride < cols`.
    pub fn new(data: &'a [E], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert_inside(data.len(), rows, cols, row_stride);
        Self { start: data.as_ptr(), rows, cols, row_stride, lifetime: PhantomData }
    }

    /// The matrix whose row `r` starts `r * row_stride` elements after `start`.
    ///
    /// # Safety
    /// The rows are in memory that is valid, initialised and not written for `'a`.
    pub unsafe fn from_raw(start: *const E, rows: usize, cols: usize, row_stride: usize) -> Self {
        Self { start, rows, cols, row_stride, lifetime: PhantomData }
    }

    /// The matrix whose rows are one after the other.
    pub fn dense(data: &'a [E], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from the start of one row to the start of the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Row `row`, `[cols]`.
    pub fn row(&self, row: usize) -> &'a [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the constructor checked that `cols` elements from this row's start are inside the borrowed slice.
        unsafe { std::slice::from_raw_parts(self.start.add(row * self.row_stride), self.cols) }
    }

    /// The block of `rows` rows from `row` and `cols` columns from `col`.
    pub fn block(&self, row: usize, rows: usize, col: usize, cols: usize) -> Self {
        assert!(row + rows <= self.rows && col + cols <= self.cols, "block outside of the matrix");
        let offset = if rows == 0 || cols == 0 { 0 } else { row * self.row_stride + col };
        // SAFETY: the block is inside the matrix, so its first element is inside the borrowed slice.
        let start = unsafe { self.start.add(offset) };
        Self { start, rows, cols, ..*self }
    }

    /// The address of element (0, 0), for kernels.
    pub(crate) fn as_ptr(&self) -> *const E {
        self.start
    }
}

impl<'a, E: Element> MatMut<'a, E> {
    /// The matrix whose row `r` is `data[r * row_stride..][..cols]`. Panics if a row is outside `data` or
    /// `row_stride < cols`.
    pub fn new(data: &'a mut [E], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert_inside(data.len(), rows, cols, row_stride);
        Self { start: data.as_mut_ptr(), rows, cols, row_stride, lifetime: PhantomData }
    }

    /// The matrix whose row `r` starts `r * row_stride` elements after `start`.
    ///
    /// # Safety
    /// The rows are in memory that is valid, initialised and accessed through nothing else for `'a`.
    pub unsafe fn from_raw(start: *mut E, rows: usize, cols: usize, row_stride: usize) -> Self {
        Self { start, rows, cols, row_stride, lifetime: PhantomData }
    }

    /// The matrix whose rows are one after the other.
    pub fn dense(data: &'a mut [E], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from the start of one row to the start of the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Row `row`, `[cols]`.
    pub fn row_mut(&mut self, row: usize) -> &mut [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the constructor checked that the row is inside the borrowed slice, and no other view has its
        // elements.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.row_stride), self.cols) }
    }

    /// The same matrix, to read.
    pub fn as_ref(&self) -> MatRef<'_, E> {
        MatRef {
            start: self.start,
            rows: self.rows,
            cols: self.cols,
            row_stride: self.row_stride,
            lifetime: PhantomData,
        }
    }

    /// The same matrix, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> MatMut<'_, E> {
        MatMut { lifetime: PhantomData, ..*self }
    }

    /// The block of `rows` rows from `row` and `cols` columns from `col`.
    pub fn block(&mut self, row: usize, rows: usize, col: usize, cols: usize) -> MatMut<'_, E> {
        assert!(row + rows <= self.rows && col + cols <= self.cols, "block outside of the matrix");
        let offset = if rows == 0 || cols == 0 { 0 } else { row * self.row_stride + col };
        // SAFETY: the block is inside the matrix, so its first element is inside the borrowed slice.
        let start = unsafe { self.start.add(offset) };
        MatMut { start, rows, cols, row_stride: self.row_stride, lifetime: PhantomData }
    }

    /// The columns before `col` and those from it on, as two views that can be written at the same time.
    pub fn split_at_col(self, col: usize) -> (MatMut<'a, E>, MatMut<'a, E>) {
        assert!(col <= self.cols, "split at column {col} of {}", self.cols);
        let offset = if self.rows == 0 || col == self.cols { 0 } else { col };
        // SAFETY: a column of the matrix is inside the borrowed slice; the two views have no element in common.
        let right = unsafe { self.start.add(offset) };
        (
            MatMut { cols: col, ..self },
            MatMut {
                start: right,
                rows: self.rows,
                cols: self.cols - col,
                row_stride: self.row_stride,
                lifetime: PhantomData,
            },
        )
    }

    /// The address of element (0, 0), for kernels.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut E {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_split_into_views_that_are_written_together() {
        let mut data = vec![0.0; 2 * 6];
        let fused = MatMut::new(&mut data, 2, 5, 6);
        let (mut query, rest) = fused.split_at_col(2);
        let (mut key, mut value) = rest.split_at_col(2);
        query.row_mut(1).fill(1.0);
        key.row_mut(0).fill(2.0);
        value.row_mut(1).fill(3.0);
        assert_eq!(data, [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 3.0, 0.0]);
    }

    #[test]
    fn blocks_are_windows() {
        let data: Vec<f32> = (0..20).map(|i| i as f32).collect();
        let matrix = MatRef::new(&data, 4, 4, 5);
        let block = matrix.block(1, 2, 2, 2);
        assert_eq!(block.row(0), [7.0, 8.0]);
        assert_eq!(block.row(1), [12.0, 13.0]);
    }

    #[test]
    #[should_panic(expected = "need 19 elements of 18")]
    fn rows_outside_of_the_slice_are_refused() {
        MatRef::new(&[0.0f32; 18], 4, 4, 5);
    }
}
