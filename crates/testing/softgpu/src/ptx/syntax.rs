//! The value of a PTX text: variables, functions and statements with registers and labels resolved.

use super::{Scalar, Width};

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any of the spaces below, distinguished by the address.
    Generic,
    /// Memory of the GPU.
    Global,
    /// Memory of the GPU that kernels only read.
    Const,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// The arguments of a launch.
    Param,
}

/// A text of PTX.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// The architecture after `.target`.
    pub target: String,
    /// Variables outside of functions.
    pub variables: Vec<Variable>,
    pub kernels: Vec<Function>,
}

/// A variable of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Its address is a multiple of this.
    pub align: usize,
    /// The type of an element.
    pub scalar: Scalar,
    /// Bytes; 0 where the launch decides.
    pub bytes: usize,
    /// First elements; zeros follow.
    pub initial: Vec<Initial>,
}

/// The first value of an element.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    Number(Immediate),
    /// The address of a variable.
    Address(String),
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// The line of its name.
    pub line: u32,
    /// Parameters in their order.
    pub parameters: Vec<Variable>,
    /// Shared and local variables.
    pub variables: Vec<Variable>,
    /// The most threads of a block.
    pub max_threads: Option<u32>,
    /// Exactly these threads of a block.
    pub exact_threads: Option<[u32; 3]>,
    /// Registers of each width: predicates, small, wide.
    pub registers: [usize; 3],
    /// How many labels there are.
    pub labels: usize,
    /// The code.
    pub body: Vec<Line>,
}

/// A place in the code.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A place that branches name.
    Label(Label),
    /// An instruction.
    Statement(Statement),
}

/// A label, numbered in its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub usize);

/// A register, numbered in its function and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    /// Its size.
    pub width: Width,
    /// Its number.
    pub index: usize,
}

/// An instruction as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub line: u32,
    /// The predicate in front of it.
    pub guard: Option<Guard>,
    /// The opcode with its modifiers, parted at the dots.
    pub parts: Vec<String>,
    pub operands: Vec<Operand>,
    /// The text, on one line.
    pub text: String,
}

impl Statement {
    /// The opcode with its modifiers.
    pub fn opcode(&self) -> String {
        self.parts.join(".")
    }
}

/// A predicate in front of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The register.
    pub predicate: Register,
    /// Whether lanes run where it is false.
    pub is_negated: bool,
}

/// A number in the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// A whole number, in two's complement.
    Integer(u64),
    /// Bits of single precision.
    Single(u32),
    /// Bits of double precision.
    Double(u64),
}

/// Operands of an instruction, as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Register(Register),
    /// A predicate, inverted.
    Not(Register),
    /// Two results in two registers: `d|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// A register that the launch or the lane decides.
    Special(Special),
    /// A number.
    Immediate(Immediate),
    /// The address of a variable.
    Symbol(Symbol),
    /// A place in memory.
    Address(Base, i64),
    /// A box of a tensor: the place of the tensor map, and coordinates.
    Box(Base, Vec<Operand>),
    /// A place in code.
    Label(Label),
    /// Several registers as one.
    Vector(Vec<Operand>),
    /// A result that nobody reads.
    Sink,
}

/// The base of an address.
#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    Register(Register),
    /// A variable.
    Symbol(String),
    /// Address 0.
    Zero,
}

/// A variable's name with an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// Bytes from its start.
    pub offset: i64,
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// The thread in its block, along x, y or z.
    Thread(usize),
    /// Threads of a block.
    Threads(usize),
    /// The block in its grid.
    Block(usize),
    /// Blocks of a grid.
    Blocks(usize),
    /// The lane in its warp.
    Lane,
    /// The warp in its block.
    Warp,
    /// Warps of a block.
    Warps,
    /// A bit for this lane.
    MaskEqual,
    /// Bits for lanes below.
    MaskLess,
    /// Bits for lanes up to this one.
    MaskLessOrEqual,
    /// Bits for lanes above.
    MaskGreater,
    /// Bits for lanes from this one on.
    MaskGreaterOrEqual,
    /// The dynamic shared memory of a block, bytes.
    DynamicShared,
    /// All shared memory of a block, bytes.
    TotalShared,
    Multiprocessor,
    /// Multiprocessors: one.
    Multiprocessors,
    /// The block in its cluster: the first.
    ClusterBlock,
    /// Blocks of a cluster: one.
    ClusterBlocks,
    /// A clock: the instructions of warps so far.
    Clock,
}

impl Special {
    /// The special register of a name.
    pub fn of(name: &str) -> Option<Special> {
        let axis = |name: &str| ["x", "y", "z"].iter().position(|axis| *axis == name);
        if let Some((register, along)) = name.rsplit_once('.') {
            let axis = axis(along)?;
            return match register {
                "%tid" => Some(Special::Thread(axis)),
                "%ntid" => Some(Special::Threads(axis)),
                "%ctaid" | "%clusterid" => Some(Special::Block(axis)),
                "%nctaid" | "%nclusterid" => Some(Special::Blocks(axis)),
                "%cluster_ctaid" => Some(Special::ClusterBlock),
                "%cluster_nctaid" => Some(Special::ClusterBlocks),
                _ => None,
            };
        }
        Some(match name {
            "%laneid" => Special::Lane,
            "%warpid" => Special::Warp,
            "%nwarpid" => Special::Warps,
            "%lanemask_eq" => Special::MaskEqual,
            "%lanemask_lt" => Special::MaskLess,
            "%lanemask_le" => Special::MaskLessOrEqual,
            "%lanemask_gt" => Special::MaskGreater,
            "%lanemask_ge" => Special::MaskGreaterOrEqual,
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" => Special::TotalShared,
            "%smid" => Special::Multiprocessor,
            "%nsmid" => Special::Multiprocessors,
            "%cluster_ctarank" => Special::ClusterBlock,
            "%cluster_nctarank" => Special::ClusterBlocks,
            "%clock" | "%clock64" | "%globaltimer" | "%globaltimer_lo" => Special::Clock,
            _ => return None,
        })
    }
}
