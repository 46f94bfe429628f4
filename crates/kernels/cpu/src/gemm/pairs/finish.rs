//! From the sums of a tile to C.

use crate::gemm::Write;
use crate::lanes::{Block, Kernel, Lanes, Stored, for_each_block};
use crate::view::{MatMut, MatRef};

/// `c = sums`, or `c + sums`, plus the bias, in `f32` and rounded once where C is narrow.
pub(crate) struct Finish<'a, E> {
    pub sums: MatRef<'a>,
    pub c: MatMut<'a, E>,
    pub write: Write,
    pub bias: Option<&'a [E]>,
}

impl<E: Stored> Kernel for Finish<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (write, bias) = (self.write, self.bias);
        for row in 0..self.sums.rows() {
            let (sums, c) = (self.sums.row(row), self.c.row_mut(row));
            for_each_block(
                sums.len(),
                #[inline(always)]
                |block: Block| {
                    let sum = block.load::<L>(sums);
                    let value = match write {
                        Write::Assign => sum,
                        Write::Accumulate => block.load::<L>(c) + sum,
                    };
                    let value = match bias {
                        Some(bias) => value + block.load::<L>(bias),
                        None => value,
                    };
                    block.store(c, value);
                },
            );
        }
    }
}
