//! Panels of `f32` for engines that multiply widened numbers: those of chained products, filled up with zeros along K.

use super::engine::{Adjacent, PairsBlock, padded};
use crate::gemm::kernels::Kernels;
use crate::gemm::pack::Block;

/// Packs `panel_lanes` lanes into each panel, which has `panel` in memory.
///
/// # Safety
/// The source may be read and the panels written for the block's shape, with `panel` lanes of [`padded`] steps for each.
pub(super) unsafe fn pack(kernels: &Kernels, block: &PairsBlock, panel_lanes: usize, panel: usize) {
    let PairsBlock { source, source_stride, adjacent, lanes, steps, target } = *block;
    let target: *mut f32 = target.cast();
    let pack = kernels.pack(device::Dtype::Bf16);
    let kernel = match adjacent {
        Adjacent::Steps => pack.transposed,
        Adjacent::Lanes => pack.copied,
    };
    let (source, panel_stride) = (source.cast(), panel * padded(steps));
    // SAFETY: the caller's promise; behind its steps each panel has room up to the padded number.
    unsafe {
        kernel(&Block { source, source_stride, lanes, steps, target, panel, panel_stride, panel_lanes });
        for index in 0..lanes.div_ceil(panel_lanes) {
            let end = target.add(index * panel_stride + steps * panel);
            std::ptr::write_bytes(end, 0, panel_stride - steps * panel);
        }
    }
}
