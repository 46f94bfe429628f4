//! Decoded operations, with the rows of their registers.

use super::asynchronous::Asynchronous;
use crate::ptx::{Scalar, Space};

/// The row of a register in the registers of its width: 32 lanes.
pub type Row = u16;

/// A register of 32 or 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// At most 32 bits.
    Small(Row),
    /// 64 bits.
    Wide(Row),
    /// A result that nobody reads.
    Sink,
}

/// An instruction, and the lanes that run it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// Where it is not `None`, only lanes run whose bit is set.
    pub guard: Option<PredicateSource>,
    /// Its number among [`super::Kernel::sources`].
    pub source: u32,
}

/// A predicate that is read, as it is or inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredicateSource {
    /// The register.
    pub row: Row,
    /// Whether it is inverted.
    pub is_negated: bool,
}

/// The operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Lanes by themselves, in registers alone.
    Arithmetic(Arithmetic),
    /// Loads memory.
    Load(Transfer),
    /// Stores memory.
    Store(Transfer),
    /// Reads, changes and writes memory at once.
    Atomic(Atomic),
    /// Reads a register of another lane.
    Shuffle(Shuffle),
    /// Reads a predicate of all lanes.
    Vote(Vote),
    /// Combines a value of all lanes.
    Reduce {
        /// How.
        op: AtomicOp,
        /// Whether the values have a sign.
        is_signed: bool,
        /// The result.
        to: Row,
        /// The value.
        from: Row,
        /// The lanes.
        members: Row,
    },
    /// The lanes that have the same value.
    Match {
        /// Only whether all have, then all lanes or none.
        is_all: bool,
        /// The lanes.
        to: Row,
        /// Whether all have.
        found: Option<Row>,
        /// The value.
        from: Slot,
        /// The lanes that are asked.
        members: Row,
    },
    /// The lanes that run.
    ActiveMask(Row),
    /// Elects one of the lanes.
    Elect {
        /// Its number.
        to: Slot,
        /// Whether it is this lane.
        is_elected: Row,
        /// The lanes.
        members: Row,
    },
    /// Waits for lanes of the warp.
    WarpBarrier(Row),
    /// Waits for warps of the block.
    Barrier {
        /// Its number.
        id: Row,
        /// Threads that it waits for; without a number, all of the block.
        threads: Option<Row>,
        /// Whether the warp continues at once.
        is_arrival: bool,
        /// Whether all lanes must run this very instruction.
        is_aligned: bool,
    },
    /// A product of matrices by all lanes of a warp.
    MatrixProduct(MatrixProduct),
    /// Loads 8 x 8 matrices, each lane a part.
    LoadFragments(FragmentTransfer),
    /// Stores 8 x 8 matrices, each lane a part.
    StoreFragments(FragmentTransfer),
    /// Starts a copy to shared memory.
    AsyncCopy(AsyncCopy),
    /// Groups copies, or waits for groups.
    CopyGroup(CopyGroup),
    /// An operation of the asynchronous units of Hopper.
    Asynchronous(Asynchronous),
    /// The instructions of warps so far, as a clock.
    Clock(Slot),
    /// Orders memory accesses of a thread.
    Fence(Reach),
    /// Does nothing that can be seen.
    Nothing,
    /// Stops the kernel with a fault.
    Trap,
}

/// Who sees what a fence orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Block,
    /// The GPU, and what is beyond.
    Gpu,
}

/// Lanes by themselves, in registers alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arithmetic {
    /// Integers of up to 64 bits, all operands of one width.
    Integer(Integer, IntegerFormat, Row, [Row; 4]),
    /// A shift of 64 bits: to, from, by.
    ShiftWide(Integer, Row, Row, Row),
    /// A number of bits of 64: to, from.
    CountWide(Integer, Row, Row),
    /// A product of twice the width.
    MultiplyWide(MultiplyWide),
    /// Floating-point numbers.
    Number(Number, Row, [Row; 3]),
    /// One type to another.
    Convert(Conversion, Slot, Slot),
    /// A predicate of two numbers.
    Compare(Comparison),
    /// 32 bits by a predicate: to, where true, where false.
    SelectSmall(PredicateSource, Row, Row, Row),
    /// 64 bits by a predicate: to, where true, where false.
    SelectWide(PredicateSource, Row, Row, Row),
    /// A or b by the sign of c: to, a, b, c; whether c is a floating-point number.
    SelectBySign(Row, Row, Row, Row, bool),
    /// A predicate of two.
    Logic(Logic, Row, PredicateSource, PredicateSource),
    /// 32 bits.
    MoveSmall(Row, Row),
    /// 64 bits.
    MoveWide(Row, Row),
    /// Parts of N bits into one register, the first in the low bits.
    Pack(Slot, [Row; 4], u8, u8),
    /// One register into parts of N bits.
    Unpack([Slot; 4], Slot, u8, u8),
    /// Two of 32 bits into 64: to, low, high.
    Join(Row, Row, Row),
    /// 64 bits into two of 32: low, high, from.
    Split(Slot, Slot, Row),
    /// An address in a window, as one of all memory, or back: 64 bits, what is added.
    Displace(Row, Row, u64),
}

/// The width and sign of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerFormat {
    /// 16 bits without a sign.
    U16,
    /// 16 bits with one.
    S16,
    /// 32 bits; the operation knows about signs.
    Small,
    /// 64 bits.
    Wide,
}

/// An operation of integers. `S` and `U` at the end tell the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    Add,
    Sub,
    AddSaturating,
    SubSaturating,
    Multiply,
    MultiplyHighS,
    MultiplyHighU,
    MultiplyAdd,
    MultiplyHighAddS,
    MultiplyHighAddU,
    Multiply24S,
    Multiply24U,
    DivideS,
    DivideU,
    RemainderS,
    RemainderU,
    MinS,
    MinU,
    MaxS,
    MaxU,
    Absolute,
    Negate,
    And,
    Or,
    Xor,
    Not,
    LogicalNot,
    ShiftLeft,
    ShiftRightS,
    ShiftRightU,
    FunnelLeftClamp,
    FunnelLeftWrap,
    FunnelRightClamp,
    FunnelRightWrap,
    Lookup(u8),
    Permute,
    ExtractS,
    ExtractU,
    Insert,
    LeadingZeros,
    Population,
    Reverse,
    FindS,
    FindU,
    FindShiftS,
    FindShiftU,
    SumOfDifferencesS,
    SumOfDifferencesU,
}

/// A product of twice the width of its factors, and a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiplyWide {
    /// Whether the factors have a sign.
    pub is_signed: bool,
    /// Whether the factors have 16 bits, and the product 32.
    pub is_narrow: bool,
    /// The result.
    pub to: Row,
    pub factors: [Row; 2],
    pub addend: Option<Row>,
}

/// An operation of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The operation.
    pub op: NumberOp,
    /// The format of its numbers.
    pub format: NumberFormat,
    /// How the result is rounded.
    pub rounding: Rounding,
    /// Whether subnormal numbers count as zeros.
    pub flushes: bool,
    /// Whether the result is held to 0..=1.
    pub saturates: bool,
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOp {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a * b.
    Multiply,
    /// a * b + c, rounded once.
    Fused,
    /// The same, and 0 where it is negative.
    FusedRelu,
    /// a / b.
    Divide,
    SquareRoot,
    /// 1 / a.
    Reciprocal,
    /// The lesser; a NaN is not a number.
    Min,
    /// The greater; a NaN is not a number.
    Max,
    /// The lesser; a NaN is returned.
    MinNaN,
    /// The greater; a NaN is returned.
    MaxNaN,
    /// Without its sign.
    Absolute,
    /// With the other sign.
    Negate,
    /// b with the sign of a.
    CopySign,
}

/// A format of floating-point numbers in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Half precision.
    F16,
    /// Two of half precision.
    F16x2,
    /// Brain float.
    Bf16,
    /// Two brain floats.
    Bf16x2,
}

/// How a number between two is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    NearestAway,
    /// Toward zero.
    Zero,
    Down,
    Up,
}

/// One type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The type of the source.
    pub from: Scalar,
    /// The type of the result.
    pub to: Scalar,
    /// How the result is rounded.
    pub rounding: Rounding,
    /// Whether a floating-point result is a whole number.
    pub is_integral: bool,
    /// Whether the result is held to its type's range, or to 0..=1.
    pub saturates: bool,
    /// Whether negative results become 0.
    pub is_relu: bool,
    /// Whether subnormal numbers count as zeros.
    pub flushes: bool,
    /// The source of the low half, where the result has two.
    pub low: Option<Row>,
}

/// A predicate of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The type of its numbers.
    pub kind: ComparisonKind,
    pub test: Test,
    /// The predicate to combine with, and the operation.
    pub combined: Option<(Logic, PredicateSource)>,
    /// The result.
    pub to: Option<Row>,
    /// The result of the inverted test, combined likewise.
    pub inverted_to: Option<Row>,
    pub numbers: [Row; 2],
    /// Whether subnormal numbers count as zeros.
    pub flushes: bool,
}

/// Types that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonKind {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
}

/// A comparison: the relations for which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The first is less.
    pub less: bool,
    /// They are equal.
    pub equal: bool,
    /// The first is greater.
    pub greater: bool,
    /// One is a NaN.
    pub unordered: bool,
}

/// How two predicates are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
    /// The first alone.
    First,
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The register that holds it.
    pub base: Slot,
    /// The addend.
    pub offset: i64,
    /// The space in which it counts.
    pub space: Space,
}

/// A load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where.
    pub address: Address,
    /// Bytes of an element.
    pub bytes: u8,
    /// Whether a short element is extended by its sign.
    pub is_signed: bool,
    /// How many elements.
    pub count: u8,
    /// The first of them among [`super::Kernel::slots`].
    pub slots: u32,
    /// Whether it may be seen in the middle of others.
    pub cache: Cache,
}

/// How a load or store is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Not at all.
    Weak,
    /// As one of several that synchronise: relaxed, acquire, release or volatile.
    Strong,
}

/// Reads, changes and writes memory at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Where.
    pub address: Address,
    /// How.
    pub op: AtomicOp,
    /// The type of its numbers.
    pub scalar: Scalar,
    /// The value before.
    pub to: Slot,
    pub operand: Slot,
    /// The value that is stored by a compare-and-swap.
    pub swap: Slot,
}

/// How an atomic changes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// Reads a register of another lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    /// Which lane.
    pub mode: ShuffleMode,
    /// The result.
    pub to: Row,
    /// Whether the lane was in range.
    pub is_in_range: Option<Row>,
    /// The value.
    pub from: Row,
    /// The lane or distance.
    pub lane: Row,
    /// The clamp and the segment mask.
    pub clamp: Row,
    /// The lanes that take part.
    pub members: Row,
}

/// Which lane a shuffle reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Reads a predicate of all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Which question.
    pub mode: VoteMode,
    /// The answer: a predicate, or lanes.
    pub to: Row,
    /// The predicate.
    pub from: PredicateSource,
    /// The lanes that are asked.
    pub members: Row,
}

/// The question of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// `d[16,8] = a[16,depth] b[depth,8] + c[16,8]`, each lane holding a part of every matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProduct {
    /// The format of a and b; c and d have single precision.
    pub format: NumberFormat,
    /// 8 or 16.
    pub depth: u8,
    /// Registers of a; the first 2 at depth 8.
    pub a: [Row; 4],
    /// Registers of b; the first at depth 8.
    pub b: [Row; 2],
    /// Registers of c.
    pub c: [Row; 4],
    /// Registers of d.
    pub d: [Row; 4],
}

/// 8 x 8 matrices of 16-bit elements in shared memory, and their registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentTransfer {
    /// The address of a row; lanes 8 i to 8 i + 7 name the rows of matrix i.
    pub address: Address,
    /// The number of matrices.
    pub count: u8,
    /// Whether a register holds parts of a column instead of a row.
    pub is_transposed: bool,
    /// The registers.
    pub rows: [Row; 4],
}

/// A copy from global to shared memory that ends when it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncCopy {
    /// The destination.
    pub to: Address,
    /// The source.
    pub from: Address,
    /// Bytes that are written.
    pub bytes: u8,
    /// Bytes that are read, where fewer; zeros follow.
    pub read_bytes: Option<Row>,
}

/// Groups of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyGroup {
    /// Ends a group.
    Commit,
    /// Waits until at most N groups have not ended.
    Wait(u32),
    /// Waits for all copies.
    WaitAll,
}
