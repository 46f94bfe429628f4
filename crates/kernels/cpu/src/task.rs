//! Tasks that the threads of a rank share: an operation in parts, or a phase of a product.

use config::Products;
use device::{Bf16, DeviceError, Dtype, ExpertOp, F16, Op, Orientation, Tensor};

use crate::gemm::pairs::{Entering, Factors, Pass, RankWorkspace, Round, Target, TermProducts};
use crate::gemm::{PairsOperand, Write};
use crate::lanes::Stored;
use crate::parts;
use crate::share::Share;
use crate::worker::Worker;

/// Work with parts that threads take one by one; it is done when all of them are.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "an operation is a value of this size everywhere")]
pub(crate) enum Task {
    /// An operation whose shares are operations themselves.
    Shares(Op),
    /// Panels of the operand that all threads read in a round of a product.
    Panels(PairsMatMul, Round),
    /// Strips of the other operand, times these panels.
    Strips(PairsMatMul, Round),
}

impl Task {
    /// Into how many parts it is cut for `threads` threads.
    pub(crate) fn parts(&self, threads: usize) -> usize {
        match self {
            Task::Shares(op) => parts::number(op, threads),
            Task::Panels(_, round) => round.number_of_packing_parts(),
            Task::Strips(_, round) => round.number_of_strips(),
        }
    }
}

/// A product in AMX order.
#[derive(Clone, Copy)]
pub(crate) struct PairsMatMul {
    orientation: Orientation,
    a: Tensor,
    b: Tensor,
    bias: Option<Tensor>,
    out: Tensor,
    write: Write,
    term_products: TermProducts,
}

impl PairsMatMul {
    /// `op`, if it is a product that is computed in AMX order where products are of this kind.
    pub(crate) fn of(op: &Op, products: Products) -> Option<PairsMatMul> {
        let Op::MatMul { orientation, a, b, bias, out, write } = *op else { return None };
        let term_products = match (products, [a.dtype, b.dtype, out.dtype]) {
            (Products::Pairs, [Dtype::F32, Dtype::F32, Dtype::F32]) => TermProducts::Six,
            (Products::Pairs, [Dtype::Bf16, _, _] | [_, Dtype::Bf16, _]) => TermProducts::One,
            (Products::Pairs | Products::Chained | Products::Blocks16 | Products::Blocks8 | Products::Device, _) => {
                return None;
            }
        };
        Some(PairsMatMul { orientation, a, b, bias, out, write, term_products })
    }

    /// Some rows and columns of the result.
    fn strip(self, [rows, columns]: [std::ops::Range<usize>; 2]) -> (Tensor, Option<Tensor>) {
        let bias = self.bias.map(|bias| bias.elements(columns.clone()));
        (self.out.rows_of(rows).cols_of(columns), bias)
    }
}

impl Worker {
    /// The operands of `product`.
    pub(crate) fn factors(&self, product: &PairsMatMul) -> Result<Factors<'_>, DeviceError> {
        let PairsMatMul { orientation, a, b, term_products, .. } = *product;
        let operands = match term_products {
            TermProducts::Six => [Entering::Terms(self.matrix(a)?), Entering::Terms(self.matrix(b)?)],
            TermProducts::One => [Entering::Pairs(self.pairs_operand(a)?), Entering::Pairs(self.pairs_operand(b)?)],
        };
        Ok(Factors { orientation, operands, term_products })
    }

    fn pass(&self, product: &PairsMatMul) -> Result<Pass<'_>, DeviceError> {
        Ok(Pass::new(self.factors(product)?, self.instruction_set))
    }

    /// A matrix to multiply in AMX order.
    fn pairs_operand(&self, tensor: Tensor) -> Result<PairsOperand<'_>, DeviceError> {
        Ok(match tensor.dtype {
            Dtype::Bf16 => PairsOperand::Bf16(self.matrix(tensor)?),
            Dtype::F32 => PairsOperand::Rounded(self.matrix(tensor)?),
            Dtype::F16 | Dtype::I32 | Dtype::I64 => {
                let what = format!("{tensor:?} is not an operand of products in AMX order");
                return Err(DeviceError::Shape { op: "matrix", what });
            }
        })
    }

    /// The rounds in which `threads` threads multiply. Panics if the shapes do not fit together.
    pub(crate) fn rounds(
        &self,
        product: &PairsMatMul,
        threads: usize,
    ) -> Result<impl Iterator<Item = Round> + use<>, DeviceError> {
        let pass = self.pass(product)?;
        pass.assert_fits((product.out.rows, product.out.cols), product.bias.map(|bias| bias.len()));
        Ok(pass.rounds(RankWorkspace::SIZES, threads))
    }

    /// Does one part of `task`.
    ///
    /// # Safety
    /// Nobody else does this part. Of a round, all panels are done before the first strip is begun, and all strips
    /// before the next round's panels.
    pub(crate) unsafe fn execute_part(&self, task: &Task, share: Share) -> Result<(), DeviceError> {
        match task {
            Task::Shares(Op::Experts(op @ ExpertOp::MatMul { .. })) => self.execute_groups(op, share),
            Task::Shares(op) => parts::part(op, share).map_or(Ok(()), |part| self.execute(&part)),
            Task::Panels(product, round) => {
                let pass = self.pass(product)?;
                let mut packing = self.packing.borrow_mut();
                let own = packing.workspace_for_strips();
                // SAFETY: the caller's promise.
                unsafe { pass.pack_common(round, share.index, self.workspace.workspace(), own.rounded) };
                Ok(())
            }
            // SAFETY: the caller's promise.
            Task::Strips(product, round) => unsafe {
                match product.out.dtype {
                    Dtype::F32 => self.multiply_strip::<f32>(product, round, share.index),
                    Dtype::Bf16 => self.multiply_strip::<Bf16>(product, round, share.index),
                    Dtype::F16 => self.multiply_strip::<F16>(product, round, share.index),
                    Dtype::I32 | Dtype::I64 => Err(product.out.not_real()),
                }
            },
        }
    }

    /// Computes what a strip has of the result.
    ///
    /// # Safety
    /// As for [`Worker::execute_part`].
    unsafe fn multiply_strip<E: Stored>(
        &self,
        product: &PairsMatMul,
        round: &Round,
        strip: usize,
    ) -> Result<(), DeviceError> {
        let Some(place) = round.rows_and_columns(strip) else { return Ok(()) };
        let (out, bias) = product.strip(place);
        let bias = bias.map(|bias| self.reals(bias)).transpose()?;
        let target = Target { c: self.matrix_mut::<E>(out)?, write: product.write, bias };
        let pass = self.pass(product)?;
        let mut packing = self.packing.borrow_mut();
        let mut own = packing.workspace_for_strips();
        // SAFETY: the caller's promise.
        unsafe { pass.multiply_strip(round, strip, target, self.workspace.workspace(), &mut own, &self.meter) };
        Ok(())
    }
}
