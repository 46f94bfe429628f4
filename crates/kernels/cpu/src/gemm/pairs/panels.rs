//! How one operand of a product is packed.

use device::{Bf16, Element};

use super::engine::Engine;
use super::terms::TERMS;
use super::tile::{Adjacent, PairsBlock, padded};
use crate::view::MatRef;

/// Which operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The left one, of which a panel has some rows.
    A,
    /// The right one, of which a panel has some columns.
    B,
}

impl Side {
    /// The other operand.
    pub(super) fn other(self) -> Self {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Elements that panels are packed from: bf16 as it is, and single precision in terms.
pub(super) trait Packed: Element {
    /// Numbers of bf16 that one enters as.
    const TERMS: usize;
    /// How an engine packs A and B.
    fn kernels(engine: &Engine) -> [unsafe fn(&PairsBlock<Self>); 2];
}

impl Packed for Bf16 {
    const TERMS: usize = 1;
    fn kernels(engine: &Engine) -> [unsafe fn(&PairsBlock<Self>); 2] {
        [engine.pack_a, engine.pack_b]
    }
}

impl Packed for f32 {
    const TERMS: usize = TERMS;
    fn kernels(engine: &Engine) -> [unsafe fn(&PairsBlock<Self>); 2] {
        [engine.terms.pack_a, engine.terms.pack_b]
    }
}

/// The panels of an operand.
#[derive(Clone, Copy)]
pub(super) struct Panels<E> {
    pub adjacent: Adjacent,
    /// Of each panel.
    pub lanes: usize,
    step_bytes: usize,
    kernel: unsafe fn(&PairsBlock<E>),
}

impl<E: Packed> Panels<E> {
    /// The panels of an engine, for an operand that is in memory like this.
    pub(super) fn of(engine: &Engine, side: Side, adjacent: Adjacent) -> Self {
        let [pack_a, pack_b] = E::kernels(engine);
        let kernel = match side {
            Side::A => pack_a,
            Side::B => pack_b,
        };
        Self { adjacent, lanes: engine.panel_lanes(side), step_bytes: engine.step_bytes(side) * E::TERMS, kernel }
    }

    /// Bytes of a panel with this many steps.
    pub(super) fn bytes(&self, steps: usize) -> usize {
        self.step_bytes * padded(steps)
    }

    /// Bytes of all panels of a block.
    pub(super) fn workspace_bytes(&self, lanes: usize, steps: usize) -> usize {
        lanes.div_ceil(self.lanes) * self.bytes(steps)
    }

    /// These lanes and steps of the operand, each as start and length.
    pub(super) fn block<'m, T: Element>(
        &self,
        matrix: MatRef<'m, T>,
        lanes: (usize, usize),
        steps: (usize, usize),
    ) -> MatRef<'m, T> {
        match self.adjacent {
            Adjacent::Steps => matrix.block(lanes.0, lanes.1, steps.0, steps.1),
            Adjacent::Lanes => matrix.block(steps.0, steps.1, lanes.0, lanes.1),
        }
    }

    /// Packs a block of the operand, or its rounded copy, from the start of a room, which must be large enough. Returns
    /// its lanes and steps.
    pub(super) fn pack(&self, block: MatRef<'_, E>, workspace: &mut [u8]) -> (usize, usize) {
        let (lanes, steps) = match self.adjacent {
            Adjacent::Steps => (block.rows(), block.cols()),
            Adjacent::Lanes => (block.cols(), block.rows()),
        };
        let needed = self.workspace_bytes(lanes, steps);
        assert!(needed <= workspace.len(), "{needed} bytes of panels in {}", workspace.len());
        let block = PairsBlock {
            source: block.as_ptr(),
            source_stride: block.row_stride(),
            adjacent: self.adjacent,
            lanes,
            steps,
            target: workspace.as_mut_ptr(),
        };
        // SAFETY: the view holds the source's memory, the room is large enough as just asserted and starts at a cache
        // line, and `Engine::of` checked that the machine has the instructions.
        unsafe { (self.kernel)(&block) }
        (lanes, steps)
    }
}
