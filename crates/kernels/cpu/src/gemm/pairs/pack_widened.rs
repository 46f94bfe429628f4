//! Panels of `f32` for engines that multiply widened numbers: those of chained products, filled up with zeros along K.

use device::Bf16;

use super::PAIRS_BLOCK;
use super::terms::{TERMS, split};
use super::tile::{Adjacent, PairsBlock, padded};
use crate::gemm::kernels::Kernels;
use crate::gemm::pack::Block;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Kernel, Lanes, run};

/// Packs `panel_lanes` lanes into each panel, which has `panel` in memory.
///
/// # Safety
/// The source may be read and the panels written for the block's shape, with `panel` lanes of [`padded`] steps for
/// each.
pub(super) unsafe fn pack(kernels: &Kernels, block: &PairsBlock<Bf16>, panel_lanes: usize, panel: usize) {
    let PairsBlock { source, source_stride, adjacent, lanes, steps, target } = *block;
    let target: *mut f32 = target.cast();
    let pack = kernels.pack(device::Dtype::Bf16);
    let kernel = match adjacent {
        Adjacent::Steps => pack.transposed,
        Adjacent::Lanes => pack.copied,
    };
    let (source, panel_stride) = (source.cast(), panel * padded(steps));
    // SAFETY: the caller's promise; after its steps each panel has room up to the padded number.
    unsafe {
        kernel(&Block { source, source_stride, lanes, steps, target, panel, panel_stride, panel_lanes });
        for index in 0..lanes.div_ceil(panel_lanes) {
            let end = target.add(index * panel_stride + steps * panel);
            std::ptr::write_bytes(end, 0, panel_stride - steps * panel);
        }
    }
}

/// Packs as [`pack`] does, for operands that enter in terms: a panel has for each block of steps one of each term.
///
/// # Safety
/// As for [`pack`], for panels of three times as many steps in memory that is initialised, and the machine has the
/// instructions of `set`.
pub(super) unsafe fn pack_terms(set: InstructionSet, block: &PairsBlock<f32>, panel_lanes: usize, panel: usize) {
    let PairsBlock { source, source_stride, adjacent, lanes, steps, target } = *block;
    let target: *mut f32 = target.cast();
    let pack = Kernels::of(set).pack(device::Dtype::F32);
    let (kernel, step_stride) = match adjacent {
        Adjacent::Steps => (pack.transposed, 1),
        Adjacent::Lanes => (pack.copied, source_stride),
    };
    let (block_len, panel_stride) = (PAIRS_BLOCK * panel, TERMS * panel * padded(steps));
    for first in (0..steps).step_by(PAIRS_BLOCK) {
        let steps = PAIRS_BLOCK.min(steps - first);
        // SAFETY: the caller's promise: the source has these steps, and each panel a block of each term.
        unsafe {
            let source = source.add(first * step_stride).cast();
            let target = target.add(first * TERMS * panel);
            kernel(&Block { source, source_stride, lanes, steps, target, panel, panel_stride, panel_lanes });
            for index in 0..lanes.div_ceil(panel_lanes) {
                let terms = target.add(index * panel_stride);
                std::ptr::write_bytes(terms.add(steps * panel), 0, block_len - steps * panel);
                run(set, Split { terms: std::slice::from_raw_parts_mut(terms, TERMS * block_len) });
            }
        }
    }
}

/// Puts the first term of each number in its place, and the others into the places of theirs.
struct Split<'a> {
    /// Numbers, then room for the second terms and for the third.
    terms: &'a mut [f32],
}

impl Kernel for Split<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let len = self.terms.len() / TERMS;
        let (first, others) = self.terms.split_at_mut(len);
        let (second, third) = others.split_at_mut(len);
        for ((first, second), third) in first.iter_mut().zip(second).zip(third) {
            [*first, *second, *third] = split(*first);
        }
    }
}
