//! Products of matrices by warpgroups. Each warp computes its own 16 rows, so warps need not meet; all must come by the
//! same products in the same order.

use std::collections::VecDeque;

use super::async_order::{Agent, AsyncAccess, AsyncKind};
use super::descriptors::{DEPTH, Matrix};
use super::fault::{Fault, FaultKind};
use super::instruction_sets::InstructionSet;
use super::matrix::{check_all, first_factor};
use super::memory::Memory;
use super::register_order::RegisterOrder;
use super::registers::{Lanes, Registers, Wide};
use super::tensor_core::Rule;
use crate::checks::Check;
use crate::code::{Adds, FirstFactor, Kernel, Row, Sign, Slot, WarpgroupProduct};

/// Warps of a warpgroup.
pub const WARPS: usize = 4;
/// Rows of the product of a warp.
pub const ROWS: usize = 16;
/// Rows of a product.
const ALL_ROWS: usize = WARPS * ROWS;

/// The operands of a warp's part of a product.
#[derive(Debug)]
pub struct Operands {
    /// `a[row][k]`.
    pub a: Vec<[u16; DEPTH]>,
    /// `b[column][k]`.
    pub b: Vec<[u16; DEPTH]>,
    /// Registers of the result, as in the instruction.
    pub d: Vec<Row>,
    /// Whether the product is added to them.
    pub adds: bool,
}

/// The products that the warps of a warpgroup have come by.
#[derive(Debug, Default)]
pub struct WarpgroupSteps {
    steps: VecDeque<Step>,
    /// Products of `steps` and before it that all have come by.
    passed: usize,
    /// Products that each warp has come by.
    by_warp: [usize; WARPS],
}

/// A product with what must be the same in all warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    source: u32,
    factors: [u64; 2],
    adds: bool,
}

impl WarpgroupSteps {
    /// Whether all warps have come by as many products.
    pub fn have_passed(&self, products: usize) -> bool {
        self.passed >= products
    }

    fn pass(&mut self, warp: usize, step: Step) -> Result<(), Fault> {
        let number = self.by_warp[warp % WARPS];
        match self.steps.get(number - self.passed) {
            Some(other) if *other != step => {
                let text = "warps of a warpgroup run different products: instruction, descriptors and predicate must be the same";
                return Err(Fault::new(FaultKind::Barrier, text));
            }
            Some(_) => {}
            None => self.steps.push_back(step),
        }
        self.by_warp[warp % WARPS] += 1;
        while self.by_warp.iter().all(|passed| *passed > self.passed) {
            self.steps.pop_front();
            self.passed += 1;
        }
        Ok(())
    }
}

fn uniform(values: &Wide, name: &str) -> Result<u64, Fault> {
    match values.iter().position(|value| *value != values[0]) {
        None => Ok(values[0]),
        Some(lane) => {
            let text = format!("{name} must be the same in all lanes; got {:#x} and {:#x}", values[0], values[lane]);
            Err(Fault::of_lane(FaultKind::Invalid, lane, text))
        }
    }
}

/// The warp of a product.
#[derive(Debug)]
pub struct Context<'a, 'b> {
    pub registers: &'a Registers,
    /// Their order.
    pub order: &'a mut RegisterOrder,
    /// The products of its warpgroup.
    pub steps: &'a mut WarpgroupSteps,
    pub memory: &'a mut Memory<'b>,
    pub kernel: &'a Kernel,
    /// Warps of the block.
    pub warps: usize,
}

/// Reads the operands of a product, and begins its accesses to memory and registers.
///
/// # Errors
/// A rule of `wgmma` that does not hold.
pub fn begin(context: Context<'_, '_>, product: &WarpgroupProduct, source: u32) -> Result<Operands, Fault> {
    let Context { registers, order, steps, memory, kernel, warps } = context;
    let warp = memory.warp;
    if warp / WARPS * WARPS + WARPS > warps {
        let text = format!("warp {warp} of a block of {warps} warps is in no whole warpgroup");
        return Err(Fault::new(FaultKind::Barrier, text));
    }
    let first = product.d as usize;
    let slots = &kernel.slots[first..first + usize::from(product.columns) / 2];
    let d: Vec<Row> =
        slots.iter().filter_map(|slot| if let Slot::Small(row) = slot { Some(*row) } else { None }).collect();
    let a_rows: &[Row] = match &product.a {
        FirstFactor::Registers(rows) => rows,
        FirstFactor::Shared(..) => &[],
    };
    order.begin(d.iter().copied(), a_rows, product.columns)?;
    let adds = match product.adds {
        Adds::Always => true,
        Adds::Never => false,
        Adds::Where(predicate) => match registers.lanes_of(predicate) {
            0 => false,
            Lanes::MAX => true,
            mixed => {
                let text = format!("the predicate of a product must be the same in all lanes; got {mixed:#010x}");
                return Err(Fault::new(FaultKind::Invalid, text));
            }
        },
    };
    let b_descriptor = uniform(&registers.wide[usize::from(product.b)], "a matrix descriptor")?;
    let a_descriptor = match product.a {
        FirstFactor::Shared(row, _) => uniform(&registers.wide[usize::from(row)], "a matrix descriptor")?,
        FirstFactor::Registers(_) => 0,
    };
    steps.pass(warp, Step { source, factors: [a_descriptor, b_descriptor], adds })?;
    let mut fetch = Fetch { memory, group: order.group(), line: kernel.sources[source as usize].line };
    let invalid = |text: String| Fault::new(FaultKind::Misaligned, text);
    let columns = usize::from(product.columns);
    let b = Matrix::new(b_descriptor, product.b_major, columns).map_err(invalid)?;
    let mut b = fetch.read(&b, 0..columns)?;
    let mut a = match product.a {
        FirstFactor::Registers(rows) => first_factor(registers, rows).to_vec(),
        FirstFactor::Shared(_, major) => {
            let a = Matrix::new(a_descriptor, major, ALL_ROWS).map_err(invalid)?;
            let first = warp % WARPS * ROWS;
            fetch.read(&a, first..first + ROWS)?
        }
    };
    for (matrix, sign) in [(&mut a, product.signs[0]), (&mut b, product.signs[1])] {
        if sign == Sign::Minus {
            matrix.iter_mut().flatten().for_each(|bits| *bits ^= 0x8000);
        }
    }
    Ok(Operands { a, b, d, adds })
}

/// Reads matrices of a product.
struct Fetch<'a, 'b> {
    memory: &'a mut Memory<'b>,
    group: u32,
    line: u32,
}

impl Fetch<'_, '_> {
    fn read(&mut self, matrix: &Matrix, outer: std::ops::Range<usize>) -> Result<Vec<[u16; DEPTH]>, Fault> {
        let warp = self.memory.warp;
        let size = self.memory.shared.bytes.len();
        for range in matrix.ranges(outer.clone()) {
            if range.end > size {
                return Err(super::local::outside(
                    "shared memory of the block",
                    range.start as u64,
                    range.len(),
                    size,
                    0,
                ));
            }
            if self.memory.checks.shared == Check::On {
                let agent = Agent::products(warp / WARPS);
                let access = AsyncAccess { range, kind: AsyncKind::Product, agent, time: self.group, line: self.line };
                self.memory.shared.begin(access, warp, 0)?;
            }
        }
        matrix.read(outer, |place| {
            let bytes = self.memory.shared.read_asynchronously(place, 16, 0)?;
            Ok(std::array::from_fn(|index| u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])))
        })
    }
}

/// Computes a warp's part of a product.
///
/// # Errors
/// Lanes that do not run it.
pub fn compute(
    set: InstructionSet,
    registers: &mut Registers,
    operands: &Operands,
    product: &WarpgroupProduct,
    rule: Rule,
    lanes: Lanes,
) -> Result<(), Fault> {
    check_all(lanes)?;
    set.multiply_warpgroup(registers, operands, product.format, rule);
    Ok(())
}
