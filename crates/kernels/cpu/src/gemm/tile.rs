//! The innermost product: a tile of C that fits the vector registers.
//!
//! One step of K loads a row of B (one or two registers) and multiplies it by each row's element of A; the sums stay in
//! registers until the last step. Each element of the tile is one chain of fused multiply-adds that starts from zero
//! and takes the steps in ascending order, whatever the number of rows, registers or lanes.

use super::Write;
use super::vector::Vector;

/// One tile of C: `c[rows, columns] = a[rows, steps] b[steps, columns]`, added or assigned. The number of rows and
/// of registers per row are part of the kernel that runs it.
pub(crate) struct Tile {
    /// Length of the sums.
    pub steps: usize,
    /// Element (0, 0) of A.
    pub a: *const f32,
    /// From one row of A to the next if A is [`RowMajor`], from one step to the next if it is [`StepMajor`].
    pub a_stride: usize,
    /// Element (0, 0) of B.
    pub b: *const f32,
    /// From one step of B to the next; columns are adjacent.
    pub b_stride: usize,
    /// Element (0, 0) of C.
    pub c: *mut f32,
    /// From one row of C to the next; columns are adjacent.
    pub c_stride: usize,
    /// Columns of B and C that exist, at most the lanes of the kernel's registers.
    pub columns: usize,
    /// Whether C is added to or replaced.
    pub write: Write,
    /// The bias of each column, added at the end, or null.
    pub bias: *const f32,
}

/// Fewest steps between two rows of C that are asked for: short sums are of blocks that are in cache already.
const STEPS_PER_ROW_OF_C: usize = 16;

/// A kernel for a given number of rows and registers. Unsafe because the pointers of the tile must be valid for its
/// shape, and the machine must have the kernel's instructions.
pub(crate) type TileKernel = unsafe fn(&Tile);

/// Where the elements of A are.
pub(crate) trait Layout {
    /// Elements by which the addresses advance per step.
    fn step(a_stride: usize) -> usize;

    /// Elements from the address of row 0 to that of `row`.
    fn row(a_stride: usize, row: usize) -> usize;
}

/// Steps of one row are adjacent: A as it is in memory in NT and NN products.
pub(crate) struct RowMajor;

/// Rows of one step are adjacent: packed A, and A as it is in memory in TN products.
pub(crate) struct StepMajor;

impl Layout for RowMajor {
    #[inline(always)]
    fn step(_: usize) -> usize {
        1
    }

    #[inline(always)]
    fn row(a_stride: usize, row: usize) -> usize {
        a_stride * row
    }
}

impl Layout for StepMajor {
    #[inline(always)]
    fn step(a_stride: usize) -> usize {
        a_stride
    }

    #[inline(always)]
    fn row(_: usize, row: usize) -> usize {
        row
    }
}

/// The body for each of `ROWS` rows, written out, with the row as a constant. The compiler unrolls a loop only up to a
/// size of its own choosing, and sums that a loop walks through are in memory, not in registers: of a tile of 14 rows,
/// a step then takes four times as long.
macro_rules! for_each_row {
    ($rows:ident, $row:ident, $body:block) => {
        const { assert!($rows <= 14, "more rows than are written out") };
        for_each_row!($rows, $row, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    ($rows:ident, $row:ident, $body:block, $($index:literal)*) => {
        $(if $index < $rows {
            const $row: usize = $index;
            $body
        })*
    };
}

/// Runs a tile of `ROWS` rows and `VECTORS` registers per row.
///
/// # Safety
/// The machine has the instructions of `V`. For the tile's shape, `a` and `b` may be read, `c` may be read and written
/// and nothing else has access to it; `bias` is null or has `columns` readable values.
/// `columns` is in `(VECTORS - 1) * LANES + 1 ..= VECTORS * LANES`.
#[inline(always)]
pub(crate) unsafe fn run<V: Vector, L: Layout, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: all addresses are inside the tile's operands, which the caller vouches for; of the last register per row
    // only the lanes of existing columns are read and written.
    unsafe {
        let last = VECTORS - 1;
        let lanes = tile.columns - last * V::LANES;
        // Loads under a mask take a multiplier's turn on some processors: whole tiles have a loop without.
        let sums = if lanes == V::LANES {
            multiply::<V, L, ROWS, VECTORS>(
                tile,
                #[inline(always)]
                |source| V::load(source),
            )
        } else {
            multiply::<V, L, ROWS, VECTORS>(
                tile,
                #[inline(always)]
                |source| V::load_first(source, lanes),
            )
        };
        for_each_row!(ROWS, ROW, { write_row(tile, ROW, sums[ROW], lanes) });
    }
}

/// Assigns or adds a row of the tile, and the bias; `lanes` lanes of its last register exist.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn write_row<V: Vector, const VECTORS: usize>(tile: &Tile, row: usize, sums: [V; VECTORS], lanes: usize) {
    // SAFETY: as in `run`.
    unsafe {
        for (vector, sum) in sums.into_iter().enumerate() {
            let column = vector * V::LANES;
            let c = tile.c.add(row * tile.c_stride + column);
            let whole = vector < VECTORS - 1 || lanes == V::LANES;
            let load = |source: *const f32| {
                if whole { V::load(source) } else { V::load_first(source, lanes) }
            };
            let mut value = sum;
            match tile.write {
                Write::Assign => {}
                Write::Accumulate => value = load(c).add(value),
            }
            if !tile.bias.is_null() {
                value = value.add(load(tile.bias.add(column)));
            }
            if whole {
                value.store(c);
            } else {
                value.store_first(c, lanes);
            }
        }
    }
}

/// The sums of the tile, in registers; `load_last` reads the last register of a row of B.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn multiply<V: Vector, L: Layout, const ROWS: usize, const VECTORS: usize>(
    tile: &Tile,
    load_last: impl Fn(*const f32) -> V,
) -> [[V; VECTORS]; ROWS] {
    // SAFETY: as in `run`; the addresses only advance past the last step after its last use.
    unsafe {
        let last = VECTORS - 1;
        let step = L::step(tile.a_stride);
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        // One address per three rows: the others are one and two strides further, which an x86 address can say, and so
        // fourteen rows of a row-major A need no more registers than there are.
        let mut a: [*const f32; 5] = std::array::from_fn(|third| tile.a.wrapping_add(L::row(tile.a_stride, 3 * third)));
        let mut b = tile.b;
        // C is asked for a row at a time: all at once would fill the queue of what is on its way from memory, and B's
        // next steps wait after it.
        let mut c = tile.c.cast_const();
        let (mut ahead, per_row) = (tile.steps, (tile.steps / ROWS).max(STEPS_PER_ROW_OF_C));
        while ahead > 0 {
            for vector in 0..VECTORS {
                V::prefetch(c.wrapping_add(vector * V::LANES));
            }
            c = c.wrapping_add(tile.c_stride);
            let steps = per_row.min(ahead);
            ahead -= steps;
            for _ in 0..steps {
                let mut columns = [V::zero(); VECTORS];
                for (vector, column) in columns.iter_mut().enumerate() {
                    let source = b.add(vector * V::LANES);
                    *column = if vector < last { V::load(source) } else { load_last(source) };
                }
                for_each_row!(ROWS, ROW, {
                    let element = V::splat(a[ROW / 3].add(L::row(tile.a_stride, ROW % 3)));
                    for (sum, column) in sums[ROW].iter_mut().zip(columns) {
                        *sum = element.multiply_add(column, *sum);
                    }
                });
                for address in &mut a {
                    *address = address.wrapping_add(step);
                }
                b = b.wrapping_add(tile.b_stride);
            }
        }
        sums
    }
}
