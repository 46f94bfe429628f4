//! AdamW in one pass over parameters, gradients and moments.

use device::{AdamWFactors, AdamWUpdate};

use crate::lanes::{Kernel, Lanes, Stored, for_each_block};

/// One update of flat slices, in place (Loshchilov, Hutter, arXiv 1711.05101, in the form of PyTorch's `AdamW`):
///
/// `g = grad * coefficient`, `p *= 1 - lr * decay`, `m = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g^2`,
/// `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)`.
///
/// The scalars are those of [`AdamWUpdate::factors`]. `grad` is not changed.
pub struct AdamW<'a, E = f32> {
    /// Parameters, updated.
    pub param: &'a mut [f32],
    /// Assigned: the updated parameters as layers read them, where that is another type.
    pub copy: Option<&'a mut [E]>,
    /// Gradients before the coefficient.
    pub grad: &'a [f32],
    /// `m`, updated.
    pub first_moment: &'a mut [f32],
    /// `v`, updated.
    pub second_moment: &'a mut [f32],
    /// Factor of all gradients: clipping and the number of tokens.
    pub coefficient: f32,
    /// Learning rate, decay, betas, epsilon and the number of the update.
    pub update: AdamWUpdate,
}

impl<E: Stored> Kernel for AdamW<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let lengths = [self.grad.len(), self.first_moment.len(), self.second_moment.len()];
        assert_eq!(lengths, [self.param.len(); 3], "slices of one length");
        assert!(self.copy.as_ref().is_none_or(|copy| copy.len() == self.param.len()), "a copy of the same length");
        let AdamWFactors { keep, beta1_kept, beta1_new, beta2_kept, beta2_new, step, root_correction, epsilon } =
            self.update.factors();
        let [keep, step, root_correction, epsilon] = [keep, step, root_correction, epsilon].map(L::splat);
        let [beta1_kept, beta1_new, beta2_kept, beta2_new] =
            [beta1_kept, beta1_new, beta2_kept, beta2_new].map(L::splat);
        let coefficient = L::splat(self.coefficient);
        for_each_block(
            self.param.len(),
            #[inline(always)]
            |block| {
                let gradient = block.load::<L>(self.grad) * coefficient;
                let first = block.load::<L>(self.first_moment).mul_add(beta1_kept, beta1_new * gradient);
                let square = gradient * gradient;
                let second = block.load::<L>(self.second_moment).mul_add(beta2_kept, beta2_new * square);
                let denominator = second.sqrt().mul_add(root_correction, epsilon);
                let param = block.load::<L>(self.param) * keep;
                block.store(self.first_moment, first);
                block.store(self.second_moment, second);
                let updated = (first / denominator).mul_add(step, param);
                block.store(self.param, updated);
                if let Some(copy) = &mut self.copy {
                    block.store(copy, updated);
                }
            },
        );
    }
}
