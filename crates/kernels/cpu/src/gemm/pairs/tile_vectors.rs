//! Tiles in registers of AVX-512 and AVX2, in assembly as a whole: while they run, subnormal operands and results are
//! zeros, as they are for AMX, and compiled code must not meet a processor that is set up like that.

use std::arch::asm;

use super::tile::{Begin, PairsTile};

/// Control of floating-point operations: subnormal operands (bit 6) and results (bit 15) are zeros, no exception traps
/// (bits 7 to 12), rounding to nearest.
const FLUSHING: u32 = 1 << 15 | 1 << 6 | 0x3f << 7;

/// Room for the even chains of a block while the odd ones are in registers, and for the control word.
#[repr(C, align(64))]
struct Scratch {
    even: [f32; 12 * 32],
    control: [u32; 2],
}

/// Multiplies one step: `$row` of A in all lanes times both registers of B is added to two chains.
macro_rules! step {
    ($vector:literal, $b:literal, $c:literal, $scalar:literal, $row:literal, $left:literal, $right:literal) => {
        concat!(
            "vbroadcastss ",
            $vector,
            $scalar,
            ", dword ptr [{a} + {odd_a} + 4*",
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

/// Computes a tile of this many rows and columns, in two registers a row of `$bytes` each: the registers for B and an
/// element of A, the bytes of a step in the panels of A and B, all registers that are written, and the rows with their
/// sums' registers.
macro_rules! tile {
    (
        $tile:ident, ($rows:literal $columns:literal), $vector:literal, $bytes:literal, ($b:literal $c:literal $scalar:literal),
        ($a_step:literal $b_step:literal), [$($register:tt)*], $(($row:literal $left:literal $right:literal))*
    ) => {
        $tile.rows_of_c.ask_for();
        let Some(tile) = begun::<$rows, $columns>($tile) else { return };
        let mut scratch = Scratch { even: [0.0; 12 * 32], control: [0, FLUSHING] };
        asm!(
            "stmxcsr [{scratch} + 1536]",
            "ldmxcsr [{scratch} + 1540]",
            "2:",
            // Even steps, then odd ones.
            "xor {odd_a:e}, {odd_a:e}",
            "xor {odd_b:e}, {odd_b:e}",
            "3:",
            $(concat!("vxorps ", $vector, $left, ", ", $vector, $left, ", ", $vector, $left),
              concat!("vxorps ", $vector, $right, ", ", $vector, $right, ", ", $vector, $right),)*
            "mov {pairs:e}, 16",
            "4:",
            concat!("vmovups ", $vector, $b, ", [{b} + {odd_b}]"),
            concat!("vmovups ", $vector, $c, ", [{b} + {odd_b} + ", $bytes, "]"),
            $(step!($vector, $b, $c, $scalar, $row, $left, $right),)*
            concat!("add {odd_a}, 2*", $a_step),
            concat!("add {odd_b}, 2*", $b_step),
            "dec {pairs:e}",
            "jnz 4b",
            // After the even steps of a block the offset is that of its end, after the odd ones a step more.
            concat!("cmp {odd_a}, 32*", $a_step),
            "jne 5f",
            $(concat!("vmovups [{scratch} + ", $left, "*", $bytes, "], ", $vector, $left),
              concat!("vmovups [{scratch} + ", $right, "*", $bytes, "], ", $vector, $right),)*
            concat!("mov {odd_a:e}, ", $a_step),
            concat!("mov {odd_b:e}, ", $b_step),
            "jmp 3b",
            "5:",
            "mov {row}, {sums}",
            $(concat!("vaddps ", $vector, $left, ", ", $vector, $left, ", [{scratch} + ", $left, "*", $bytes, "]"),
              concat!("vaddps ", $vector, $right, ", ", $vector, $right, ", [{scratch} + ", $right, "*", $bytes, "]"),
              concat!("vaddps ", $vector, $left, ", ", $vector, $left, ", [{row}]"),
              concat!("vaddps ", $vector, $right, ", ", $vector, $right, ", [{row} + ", $bytes, "]"),
              concat!("vmovups [{row}], ", $vector, $left),
              concat!("vmovups [{row} + ", $bytes, "], ", $vector, $right),
              "add {row}, {row_of_sums}",)*
            concat!("add {a}, 32*", $a_step),
            concat!("add {b}, 32*", $b_step),
            "dec {blocks}",
            "jnz 2b",
            "ldmxcsr [{scratch} + 1536]",
            "vzeroupper",
            a = inout(reg) tile.a => _,
            b = inout(reg) tile.b => _,
            blocks = inout(reg) tile.blocks => _,
            sums = in(reg) tile.sums,
            row_of_sums = in(reg) tile.sums_stride * size_of::<f32>(),
            row = out(reg) _,
            scratch = in(reg) &raw mut scratch,
            odd_a = out(reg) _,
            odd_b = out(reg) _,
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

/// Computes 12 x 32 sums.
///
/// # Safety
/// The machine has AVX-512; the panels hold `blocks` blocks, the sums can be read and written.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn tile_512_bits(tile: &PairsTile) {
    // SAFETY: the caller's promise; scratch has room for 24 registers, and the control word is what it was at the end.
    unsafe {
        tile!(
            tile, (12 32), "zmm", "64", ("24" "25" "26"), ("64" "128"),
            [
                "zmm0" "zmm1" "zmm2" "zmm3" "zmm4" "zmm5" "zmm6" "zmm7" "zmm8" "zmm9" "zmm10" "zmm11" "zmm12" "zmm13"
                "zmm14" "zmm15" "zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23" "zmm24" "zmm25" "zmm26"
            ],
            ("0" "0" "1") ("1" "2" "3") ("2" "4" "5") ("3" "6" "7") ("4" "8" "9") ("5" "10" "11") ("6" "12" "13")
            ("7" "14" "15") ("8" "16" "17") ("9" "18" "19") ("10" "20" "21") ("11" "22" "23")
        );
    }
}

/// Computes 6 x 16 sums.
///
/// # Safety
/// The machine has AVX2 and FMA; the panels hold `blocks` blocks, the sums can be read and written.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn tile_256_bits(tile: &PairsTile) {
    // SAFETY: the caller's promise; scratch has room for 12 registers, and the control word is what it was at the end.
    unsafe {
        tile!(
            tile, (6 16), "ymm", "32", ("12" "13" "14"), ("32" "64"),
            [
                "ymm0" "ymm1" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7" "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13"
                "ymm14" "ymm15"
            ],
            ("0" "0" "1") ("1" "2" "3") ("2" "4" "5") ("3" "6" "7") ("4" "8" "9") ("5" "10" "11")
        );
    }
}
