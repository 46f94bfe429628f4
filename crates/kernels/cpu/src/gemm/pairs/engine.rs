//! The part of each instruction set in products in AMX order: the shape of its tiles and panels, and the functions that
//! work on them.

use device::Bf16;

use super::panels::Side;
use super::tile::{PairsBlock, PairsTile};
#[cfg(target_arch = "x86_64")]
use super::tile_vectors;
use super::{pack_widened, tile_scalar};
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;

/// The functions may be called where [`InstructionSet::is_available`], `tile` between `enter` and `leave` on one
/// thread.
pub(super) struct Engine {
    /// Rows of a tile and of a panel of A.
    pub panel_rows: usize,
    /// Columns of a tile and of a panel of B.
    pub panel_columns: usize,
    /// Bytes of one step of a panel of A.
    pub a_step_bytes: usize,
    /// Bytes of one step of a panel of B.
    pub b_step_bytes: usize,
    /// Most steps of a panel, a multiple of [`PAIRS_BLOCK`]: of as many as registers may sum before the panels leave
    /// the caches.
    pub most_steps: usize,
    pub enter: unsafe fn(),
    pub leave: unsafe fn(),
    pub pack_a: unsafe fn(&PairsBlock<Bf16>),
    pub pack_b: unsafe fn(&PairsBlock<Bf16>),
    pub tile: unsafe fn(&PairsTile),
    /// Bytes that a tile asks for ahead of their use, for each block of steps.
    pub ahead_bytes: usize,
    pub terms: TermsOfEngine,
}

/// The same for operands that enter in terms: panels are three times as large.
pub(super) struct TermsOfEngine {
    pub pack_a: unsafe fn(&PairsBlock<f32>),
    pub pack_b: unsafe fn(&PairsBlock<f32>),
    pub tile: unsafe fn(&PairsTile),
    pub ahead_bytes: usize,
}

/// Most sums of a tile, of any engine.
pub(super) const MOST_SUMS: usize = AMX_LANES * AMX_LANES;

impl Engine {
    /// The same engine. It does not compile where a panel may hold more than [`LARGEST_PANEL`] elements, or a tile more
    /// than [`MOST_SUMS`].
    const fn checked(self) -> Self {
        let most_lanes = if self.panel_rows > self.panel_columns { self.panel_rows } else { self.panel_columns };
        assert!(most_lanes * self.most_steps <= LARGEST_PANEL, "a panel is larger than the room for one");
        assert!(self.panel_rows * self.panel_columns <= MOST_SUMS, "a tile is larger than the room for one");
        self
    }
}

/// Nothing is to be done.
unsafe fn nothing() {}

/// Most elements of a panel of any engine.
pub(super) const LARGEST_PANEL: usize = AMX_LANES * AMX_STEPS;
/// Rows and columns of a tile of AMX.
const AMX_LANES: usize = 32;
/// Runs of steps for AMX: of a K up to this sums stay in registers.
const AMX_STEPS: usize = 3072;
/// Runs of steps of engines that read widened numbers, as of chained products: their panels stay in L1 and L2.
const WIDENED_STEPS: usize = 256;

/// An engine that reads widened numbers, packed with the kernels of a set of `$lanes` lanes: `$rows` rows of two
/// registers.
macro_rules! widened {
    ($set:expr, $lanes:literal, $rows:literal, $tile:path, $tile_of_terms:path) => {{
        unsafe fn pack_a(block: &PairsBlock<Bf16>) {
            // SAFETY: the caller's promise.
            unsafe { pack_widened::pack(Kernels::of($set), block, $rows, $lanes) }
        }
        unsafe fn pack_b(block: &PairsBlock<Bf16>) {
            // SAFETY: the caller's promise.
            unsafe { pack_widened::pack(Kernels::of($set), block, 2 * $lanes, 2 * $lanes) }
        }
        unsafe fn pack_terms_a(block: &PairsBlock<f32>) {
            // SAFETY: the caller's promise.
            unsafe { pack_widened::pack_terms($set, block, $rows, $lanes) }
        }
        unsafe fn pack_terms_b(block: &PairsBlock<f32>) {
            // SAFETY: the caller's promise.
            unsafe { pack_widened::pack_terms($set, block, 2 * $lanes, 2 * $lanes) }
        }
        static ENGINE: Engine = Engine {
            panel_rows: $rows,
            panel_columns: 2 * $lanes,
            a_step_bytes: $lanes * size_of::<f32>(),
            b_step_bytes: 2 * $lanes * size_of::<f32>(),
            most_steps: WIDENED_STEPS,
            enter: nothing,
            leave: nothing,
            pack_a,
            pack_b,
            tile: $tile,
            ahead_bytes: 0,
            terms: TermsOfEngine { pack_a: pack_terms_a, pack_b: pack_terms_b, tile: $tile_of_terms, ahead_bytes: 0 },
        }
        .checked();
        &ENGINE
    }};
}

#[cfg(target_arch = "x86_64")]
mod amx {
    use super::{AMX_LANES, AMX_STEPS, Engine, TermsOfEngine};
    use crate::gemm::pairs::{amx, pack_pairs, pack_terms};

    pub(super) static ENGINE: Engine = Engine {
        panel_rows: AMX_LANES,
        panel_columns: AMX_LANES,
        a_step_bytes: 64,
        b_step_bytes: 64,
        most_steps: AMX_STEPS,
        enter: amx::configure,
        leave: amx::release,
        pack_a: pack_pairs::pack_a,
        pack_b: pack_pairs::pack_b,
        tile: amx::tile,
        ahead_bytes: amx::AHEAD_BYTES,
        terms: TermsOfEngine {
            pack_a: pack_terms::pack_a,
            pack_b: pack_terms::pack_b,
            tile: amx::tile_of_terms,
            ahead_bytes: 5 * amx::AHEAD_BYTES,
        },
    }
    .checked();
}

impl Engine {
    pub(super) fn panel_lanes(&self, side: Side) -> usize {
        match side {
            Side::A => self.panel_rows,
            Side::B => self.panel_columns,
        }
    }

    /// Bytes of one step of a panel, of one term.
    pub(super) fn step_bytes(&self, side: Side) -> usize {
        match side {
            Side::A => self.a_step_bytes,
            Side::B => self.b_step_bytes,
        }
    }

    /// The engine of `instruction_set`. Panics on a machine that does not have it.
    pub(super) fn of(instruction_set: InstructionSet) -> &'static Engine {
        assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
        match instruction_set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Amx => &amx::ENGINE,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => {
                widened!(InstructionSet::Avx512, 16, 12, tile_vectors::tile_512_bits, tile_vectors::terms_512_bits)
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => {
                widened!(InstructionSet::Avx2, 8, 6, tile_vectors::tile_256_bits, tile_vectors::terms_256_bits)
            }
            #[cfg(not(target_arch = "x86_64"))]
            InstructionSet::Amx | InstructionSet::Avx512 | InstructionSet::Avx2 => Engine::scalar(),
            InstructionSet::Scalar => Engine::scalar(),
        }
    }

    fn scalar() -> &'static Engine {
        widened!(InstructionSet::Scalar, 4, 4, tile_scalar::tile, tile_scalar::tile_of_terms)
    }
}
