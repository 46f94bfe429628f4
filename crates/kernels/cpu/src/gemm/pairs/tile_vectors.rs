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
    /// Products of these terms, from the bytes of a step in A and in B.
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

/// Computes a tile from panels with steps of this many bytes in A and B: its rows and columns, in two registers a row
/// of `$bytes` each, the registers for B and an element of A, all registers that are written, and half of the rows with
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

/// `VDPBF16PS` is not used, because no processor is known to do it more often than a multiply-add. With one of its two
/// products taken out it has the bits of these tiles all the same.
#[cfg(test)]
mod tests {
    use std::arch::x86_64::*;

    use super::super::tile_scalar::{flushed, multiply_add};

    const LANES: usize = 16;

    /// Two factors of bf16 for each lane: the even one in the lower half.
    type Pairs = [[u16; 2]; LANES];

    /// The instruction.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot(sums: [f32; LANES], a: Pairs, b: Pairs) -> [f32; LANES] {
        // SAFETY: all have the size of a register, and any bits are a value.
        unsafe {
            let [a, b] = [a, b].map(|pairs| std::mem::transmute::<Pairs, __m512bh>(pairs));
            std::mem::transmute(_mm512_dpbf16_ps(std::mem::transmute::<[f32; LANES], __m512>(sums), a, b))
        }
    }

    /// Draws 32 bits.
    fn draw(bits: &mut u64) -> u32 {
        *bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*bits >> 32) as u32
    }

    /// Zeros, numbers around the smallest normal one and the largest, infinities and NaN, of either sign.
    const SPECIAL: [u16; 12] = [0, 1, 0x7f, 0x80, 0x81, 0x1f80, 0x2000, 0x3f80, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0];

    /// A factor and a sum: of any bits, around 2^-63 and 2^-126, or special.
    fn drawn(kind: usize, bits: &mut u64) -> (u16, f32) {
        let (one, other) = (draw(bits), draw(bits));
        let sign = one & 0x8000_0000;
        match kind {
            0 => (one as u16, f32::from_bits(other)),
            1 => {
                let factor = (one as u16 & 0x807f) | ((61 + (other % 5) as u16) << 7);
                (factor, f32::from_bits(other & 0x807f_ffff | (((one >> 8) % 4) << 23)))
            }
            2 => {
                let special = |number: u32| SPECIAL[number as usize % SPECIAL.len()] | (number >> 16) as u16 & 0x8000;
                (special(one), f32::from_bits(u32::from(special(other)) << 16))
            }
            // Around one, so that sums cancel.
            _ => ((one as u16 & 0x807f) | 0x3f80, f32::from_bits(sign | 0x3f80_0000 | other & 0x7f_0000)),
        }
    }

    fn widened(factor: u16) -> f32 {
        flushed(f32::from_bits(u32::from(factor) << 16))
    }

    fn assert_same(name: &str, actual: f32, expected: f32, (sum, a, b): (f32, [u16; 2], [u16; 2])) {
        assert!(
            actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan(),
            "{name} of {sum:e}, {a:x?} and {b:x?} is {actual:e}, not {expected:e}"
        );
    }

    /// A product of -0 and +0 is -0, which added to any sum is the sum.
    fn without(half: usize, a: Pairs, b: Pairs) -> [Pairs; 2] {
        let with = |pairs: Pairs, zero: u16| {
            pairs.map(|mut pair| {
                pair[half] = zero;
                pair
            })
        };
        [with(a, 0x8000), with(b, 0)]
    }

    /// A million sums, of which three are compared each: of the even product, of the odd one, and of both, the odd one
    /// first.
    #[needs::avx512_bf16]
    #[test]
    fn an_instruction_with_one_product_is_a_multiply_add_in_amx_order() {
        let bits = &mut 1;
        for turn in 0..1_000_000 / LANES {
            let (mut sums, mut a, mut b) = ([0.0; LANES], [[0; 2]; LANES], [[0; 2]; LANES]);
            for lane in 0..LANES {
                let [even, odd] = [0; 2].map(|_| drawn(turn % 4, bits));
                (sums[lane], a[lane], b[lane]) = (even.1, [even.0, odd.0], [0; 2].map(|_| drawn(turn % 4, bits).0));
            }
            let [one, other] = [1, 0].map(|half| without(half, a, b));
            // SAFETY: the machine has the instruction.
            let [even, odd, both] = [one, other, [a, b]].map(|[a, b]| unsafe { dot(sums, a, b) });
            for lane in 0..LANES {
                let operands = (sums[lane], a[lane], b[lane]);
                let add = |half: usize, sum: f32| multiply_add(widened(a[lane][half]), widened(b[lane][half]), sum);
                let sum = flushed(sums[lane]);
                assert_same("the even product", even[lane], add(0, sum), operands);
                assert_same("the odd product", odd[lane], add(1, sum), operands);
                assert_same("both", both[lane], add(0, add(1, sum)), operands);
            }
        }
    }
}
