//! Tiles in registers of AVX-512 and AVX2, in assembly as a whole: while they run, subnormal operands and results are
//! zeros, as they are for AMX, and compiled code must not meet a processor that is set up like that.

use std::arch::asm;

use super::PAIRS_BLOCK;
use super::terms::{TERM_PRODUCTS, TERMS};
use super::tile::{Begin, PairsTile};

/// Control of floating-point operations: subnormal operands (bit 6) and results (bit 15) are zeros, no exception traps
/// (bits 7 to 12), rounding to nearest.
const FLUSHING: u32 = 1 << 15 | 1 << 6 | 0x3f << 7;

/// Products of a block of steps: how many terms its operands have, and where those of each product begin in A and B, in
/// bytes from the block's start.
struct BlockProducts<const PRODUCTS: usize> {
    terms: usize,
    places: [[usize; 2]; PRODUCTS],
}

impl<const PRODUCTS: usize> BlockProducts<PRODUCTS> {
    /// Products of these terms, for steps of so many bytes in A and B.
    const fn of(terms: usize, products: [(usize, usize); PRODUCTS], (a_step, b_step): (usize, usize)) -> Self {
        let mut places = [[0; 2]; PRODUCTS];
        let mut product = 0;
        while product < PRODUCTS {
            let (a, b) = products[product];
            places[product] = [a * PAIRS_BLOCK * a_step, b * PAIRS_BLOCK * b_step];
            product += 1;
        }
        Self { terms, places }
    }
}

/// Multiplies a step: `$row` of A in all lanes times both registers of B is added to two chains.
macro_rules! step {
    ($vector:literal, $b:literal, $c:literal, $scalar:literal, $a:literal, $row:literal, $left:literal, $right:literal) => {
        concat!(
            "vbroadcastss ",
            $vector,
            $scalar,
            ", dword ptr [{a_now} + ",
            $a,
            " + 4*",
            $row,
            "]\n",
            "vfmadd231ps ",
            $vector,
            $left,
            ", ",
            $vector,
            $scalar,
            ", ",
            $vector,
            $b,
            "\n",
            "vfmadd231ps ",
            $vector,
            $right,
            ", ",
            $vector,
            $scalar,
            ", ",
            $vector,
            $c,
        )
    };
}

/// Computes a tile from panels with steps of this many bytes in A and B: its rows and columns, in two registers a row of
/// `$bytes` each, the registers for B and an element of A, all registers that are written, and half of the rows with
/// the registers of their even and odd chains. The other half follows for the same product of a block, so that both
/// chains of each sum stay in registers until they are added.
macro_rules! tile {
    (
        $tile:ident, $products:expr, ($a_step:literal $b_step:literal), ($rows:literal $columns:literal),
        $vector:literal, $bytes:literal, ($b:literal $c:literal $scalar:literal), [$($register:tt)*],
        $(($row:literal $even_left:literal $even_right:literal $odd_left:literal $odd_right:literal))*
    ) => {
        $tile.rows_of_c.ask_for();
        let Some(tile) = begun::<$rows, $columns>($tile) else { return };
        let mut control = [0, FLUSHING];
        asm!(
            "stmxcsr [{control}]",
            "ldmxcsr [{control} + 4]",
            "2:",
            "xor {product:e}, {product:e}",
            "3:",
            "mov {a_now}, [{places} + {product}]",
            "mov {b_now}, [{places} + {product} + 8]",
            "add {a_now}, {a}",
            "add {b_now}, {b}",
            "mov {row}, {sums}",
            "mov {halves:e}, 2",
            "4:",
            $(concat!("vxorps ", $vector, $even_left, ", ", $vector, $even_left, ", ", $vector, $even_left),
              concat!("vxorps ", $vector, $even_right, ", ", $vector, $even_right, ", ", $vector, $even_right),
              concat!("vxorps ", $vector, $odd_left, ", ", $vector, $odd_left, ", ", $vector, $odd_left),
              concat!("vxorps ", $vector, $odd_right, ", ", $vector, $odd_right, ", ", $vector, $odd_right),)*
            "mov {pairs:e}, 16",
            "5:",
            concat!("vmovups ", $vector, $b, ", [{b_now}]"),
            concat!("vmovups ", $vector, $c, ", [{b_now} + ", $bytes, "]"),
            $(step!($vector, $b, $c, $scalar, 0, $row, $even_left, $even_right),)*
            concat!("vmovups ", $vector, $b, ", [{b_now} + ", $b_step, "]"),
            concat!("vmovups ", $vector, $c, ", [{b_now} + ", $b_step, " + ", $bytes, "]"),
            $(step!($vector, $b, $c, $scalar, $a_step, $row, $odd_left, $odd_right),)*
            concat!("add {a_now}, 2*", $a_step),
            concat!("add {b_now}, 2*", $b_step),
            "dec {pairs:e}",
            "jnz 5b",
            $(concat!("vaddps ", $vector, $even_left, ", ", $vector, $even_left, ", ", $vector, $odd_left),
              concat!("vaddps ", $vector, $even_right, ", ", $vector, $even_right, ", ", $vector, $odd_right),
              concat!("vaddps ", $vector, $even_left, ", ", $vector, $even_left, ", [{row}]"),
              concat!("vaddps ", $vector, $even_right, ", ", $vector, $even_right, ", [{row} + ", $bytes, "]"),
              concat!("vmovups [{row}], ", $vector, $even_left),
              concat!("vmovups [{row} + ", $bytes, "], ", $vector, $even_right),
              "add {row}, {row_of_sums}",)*
            concat!("sub {a_now}, 32*", $a_step, " - 4*", $rows, "/2"),
            concat!("sub {b_now}, 32*", $b_step),
            "dec {halves:e}",
            "jnz 4b",
            "add {product}, 16",
            "cmp {product}, {bytes_of_places}",
            "jne 3b",
            concat!("add {a}, {terms}*32*", $a_step),
            concat!("add {b}, {terms}*32*", $b_step),
            "dec {blocks}",
            "jnz 2b",
            "ldmxcsr [{control}]",
            "vzeroupper",
            terms = const $products.terms,
            bytes_of_places = const size_of_val(&$products.places),
            places = in(reg) const { &$products.places }.as_ptr(),
            a = inout(reg) tile.a => _,
            b = inout(reg) tile.b => _,
            blocks = inout(reg) tile.blocks => _,
            sums = in(reg) tile.sums,
            row_of_sums = in(reg) tile.sums_stride * size_of::<f32>(),
            control = in(reg) &raw mut control,
            row = out(reg) _,
            product = out(reg) _,
            a_now = out(reg) _,
            b_now = out(reg) _,
            halves = out(reg) _,
            pairs = out(reg) _,
            $(out($register) _,)*
            options(nostack),
        )
    };
}

/// Sets the sums to zero where they begin there; `None` where that is all.
///
/// # Safety
/// The sums can be written.
#[inline(always)]
unsafe fn begun<const ROWS: usize, const COLUMNS: usize>(tile: &PairsTile) -> Option<&PairsTile> {
    for row in 0..ROWS {
        match tile.begin {
            // SAFETY: the caller's promise.
            Begin::Zero => unsafe { tile.sums.add(row * tile.sums_stride).write_bytes(0, COLUMNS) },
            Begin::Stored => {}
        }
    }
    (tile.blocks > 0).then_some(tile)
}

/// Defines two functions that compute a tile: of products in AMX order, and of products of terms.
macro_rules! tiles {
    ($of_pairs:ident, $of_terms:ident, $features:literal, ($a_step:literal $b_step:literal), $($tile:tt)*) => {
        /// Computes a tile.
        ///
        /// # Safety
        /// The machine has the instructions; the panels hold `blocks` blocks, the sums can be read and written.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $of_pairs(tile: &PairsTile) {
            const PRODUCTS: BlockProducts<1> = BlockProducts::of(1, [(0, 0)], ($a_step, $b_step));
            // SAFETY: the caller's promise; the control word is what it was at the end.
            unsafe { tile!(tile, PRODUCTS, ($a_step $b_step), $($tile)*); }
        }

        /// Computes a tile from panels that have for each block of steps one of each term.
        ///
        /// # Safety
        /// As for products in AMX order.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $of_terms(tile: &PairsTile) {
            const PRODUCTS: BlockProducts<6> = BlockProducts::of(TERMS, TERM_PRODUCTS, ($a_step, $b_step));
            // SAFETY: as above.
            unsafe { tile!(tile, PRODUCTS, ($a_step $b_step), $($tile)*); }
        }
    };
}

tiles!(
    tile_512_bits, terms_512_bits, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", (64 128),
    (12 32), "zmm", 64, (24 25 26),
    [
        "zmm0" "zmm1" "zmm2" "zmm3" "zmm4" "zmm5" "zmm6" "zmm7" "zmm8" "zmm9" "zmm10" "zmm11" "zmm12" "zmm13" "zmm14"
        "zmm15" "zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23" "zmm24" "zmm25" "zmm26"
    ],
    (0 0 1 2 3) (1 4 5 6 7) (2 8 9 10 11) (3 12 13 14 15) (4 16 17 18 19) (5 20 21 22 23)
);

tiles!(
    tile_256_bits, terms_256_bits, "avx2,fma,f16c", (32 64),
    (6 16), "ymm", 32, (12 13 14),
    [
        "ymm0" "ymm1" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7" "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13" "ymm14"
        "ymm15"
    ],
    (0 0 1 2 3) (1 4 5 6 7) (2 8 9 10 11)
);
