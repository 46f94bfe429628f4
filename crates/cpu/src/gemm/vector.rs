//! What a GEMM kernel needs of a vector register, so that each kernel is written once for three instruction sets.

/// A register of `LANES` `f32` values.
///
/// Every method is inlined into a caller that was compiled for the instruction set; calling one elsewhere, on a machine
/// that lacks the instructions, is undefined behaviour. Hence all are unsafe with the same two conditions: the machine
/// has the instructions, and the lanes that a pointer method names lie inside memory that may be read or written.
pub(crate) trait Vector: Copy {
    /// Values per register.
    const LANES: usize;

    /// All lanes zero.
    unsafe fn zero() -> Self;

    /// All lanes equal to the value at `source`.
    unsafe fn splat(source: *const f32) -> Self;

    /// `LANES` consecutive values.
    unsafe fn load(source: *const f32) -> Self;

    /// The first `lanes` of `LANES` consecutive values; the other lanes are zero and not read.
    unsafe fn load_first(source: *const f32, lanes: usize) -> Self;

    /// Writes all lanes.
    unsafe fn store(self, target: *mut f32);

    /// Writes the first `lanes` lanes and nothing else.
    unsafe fn store_first(self, target: *mut f32, lanes: usize);

    /// `self * factor + addend`, rounded once.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;

    /// Asks for the cache line of an address that will soon be read and written; any address is allowed.
    unsafe fn prefetch(address: *const f32);

    /// Transposes a square of registers: lane `j` of `rows[i]` becomes lane `i` of `rows[j]`, for `rows` of `LANES`
    /// registers.
    unsafe fn transpose(rows: &mut [Self]);
}
