//! Tiles of AMX, which define the order of sums of these products.

use std::arch::asm;

use super::tile::{Begin, PairsTile, RowsOfC};

/// Operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight tiles of 16 rows of 64 bytes.
static CONFIGURATION: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Makes the thread's tiles what [`tile`] needs.
///
/// # Safety
/// [`is_available`](crate::amx_tiles::is_available).
pub(super) unsafe fn configure() {
    // SAFETY: the machine has the instruction, and the configuration is one of palette 1.
    unsafe {
        asm!(
            "ldtilecfg [{configuration}]",
            configuration = in(reg) &raw const CONFIGURATION,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly),
        );
    }
}

/// Gives the thread's tiles back: threads without any are switched faster.
///
/// # Safety
/// [`is_available`](crate::amx_tiles::is_available).
pub(super) unsafe fn release() {
    // SAFETY: the machine has the instruction; no value is in a tile.
    unsafe {
        asm!(
            "tilerelease",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, nomem),
        );
    }
}

/// Multiply-adds of one round of [`multiply_registers`].
pub(crate) const REGISTER_MULTIPLY_ADDS: usize = 4 * 16 * 16 * 32;

/// Multiplies tiles that stay where they are, `rounds` times as one step of a tile of sums does.
///
/// # Safety
/// [`is_available`](crate::amx_tiles::is_available); `rounds` is not 0.
pub(crate) unsafe fn multiply_registers(rounds: usize) {
    // Tiles that were never loaded are known to be zero, and multiplied faster.
    let values = [0x3f00_3f00u32; 256];
    // SAFETY: the machine has the instructions, and a tile is read.
    unsafe {
        configure();
        asm!(
            "tileloadd tmm0, [{values} + {row}]",
            "tileloadd tmm1, [{values} + {row}]",
            "tileloadd tmm2, [{values} + {row}]",
            "tileloadd tmm3, [{values} + {row}]",
            "tileloadd tmm4, [{values} + {row}]",
            "tileloadd tmm5, [{values} + {row}]",
            "tileloadd tmm6, [{values} + {row}]",
            "tileloadd tmm7, [{values} + {row}]",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {rounds}",
            "jnz 2b",
            values = in(reg) values.as_ptr(),
            row = in(reg) 64u64,
            rounds = inout(reg) rounds => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly),
        );
        release();
    }
}

/// Computes a tile of sums: `$loop` loads the first operands, multiplies all but the last ones, and leaves for label 6
/// with those loaded. Of C, rows are asked for while it runs, or at once where it has fewer than `$least` blocks.
macro_rules! sum_tiles {
    ($tile:ident, $least:ident, $($loop:tt)*) => {
        let begins_at_zero = match $tile.begin {
            Begin::Zero => 1u64,
            Begin::Stored => 0,
        };
        let mut rows_of_c = $tile.rows_of_c;
        if $tile.blocks < $least {
            rows_of_c.ask_for();
            rows_of_c = RowsOfC::NEAR;
        }
        asm!(
            "test {zero}, {zero}\njz 2f",
            "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3\njmp 3f",
            "2:",
            "tileloadd tmm0, [{sums} + {row_of_sums}]\ntileloadd tmm1, [{sums} + {row_of_sums} + 64]",
            "tileloadd tmm2, [{below} + {row_of_sums}]\ntileloadd tmm3, [{below} + {row_of_sums} + 64]",
            "3:",
            "test {blocks}, {blocks}\njz 5f",
            $($loop)*
            "6:",
            "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7",
            "5:",
            "tilestored [{sums} + {row_of_sums}], tmm0\ntilestored [{sums} + {row_of_sums} + 64], tmm1",
            "tilestored [{below} + {row_of_sums}], tmm2\ntilestored [{below} + {row_of_sums} + 64], tmm3",
            zero = in(reg) begins_at_zero,
            c = inout(reg) rows_of_c.start => _,
            end_of_c = in(reg) rows_of_c.end,
            row_of_c = in(reg) rows_of_c.stride,
            last_of_c = in(reg) rows_of_c.last_byte,
            ahead = inout(reg) $tile.ahead => _,
            a = inout(reg) $tile.a => _,
            b = inout(reg) $tile.b => _,
            blocks = inout(reg) $tile.blocks => _,
            sums = in(reg) $tile.sums,
            below = in(reg) $tile.sums.add(16 * $tile.sums_stride),
            row = in(reg) 64u64,
            row_of_sums = in(reg) $tile.sums_stride * size_of::<f32>(),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Asks for cache lines of the tile some bytes after an address: loads of tiles wait for their lines, and products for
/// the loads. A few at a time, for 16 at once hold up the loads and products after them. After the end of a panel is
/// the next one, or nothing that is missed.
macro_rules! ask_for_lines {
    ($start:literal, $bytes:literal, $($line:literal)*) => {
        concat!($("prefetcht0 [", $start, " + ", $bytes, " + ", $line, "]\n"),*)
    };
}

/// Asks for half of the cache lines of a tile: the first or the second half.
macro_rules! ask_for_half {
    (first, $start:literal, $bytes:literal) => {
        ask_for_lines!($start, $bytes, 0 64 128 192 256 320 384 448)
    };
    (second, $start:literal, $bytes:literal) => {
        ask_for_lines!($start, $bytes, 512 576 640 704 768 832 896 960)
    };
}

/// Bytes that are asked for ahead of their use at once.
pub(super) const AHEAD_BYTES: usize = 4 * 64;

/// Asks for the next four lines of what tiles after this one read: into L2, for they come from further away.
macro_rules! ask_ahead {
    () => {
        "prefetcht1 [{ahead}]\nprefetcht1 [{ahead} + 64]\nprefetcht1 [{ahead} + 128]\nprefetcht1 [{ahead} + 192]\nadd {ahead}, 256\n"
    };
}

/// Asks for the next row of C.
macro_rules! ask_for_row {
    () => {
        "prefetcht0 [{c}]\nprefetcht0 [{c} + {last_of_c}]\nadd {c}, {row_of_c}\n"
    };
}

/// Asks for three rows of C, if all have not been: all at once would fill the queue of what is on its way, and the
/// panels wait after it.
macro_rules! ask_for_three_rows {
    () => {
        concat!("cmp {c}, {end_of_c}\njae 7f\n", ask_for_row!(), ask_for_row!(), ask_for_row!(), "7:\n")
    };
}

/// Steps in which the 32 rows of C are asked for: all but the last ask for three.
const STEPS_FOR_ROWS: usize = 32usize.div_ceil(3) + 1;

/// Computes 32 x 32 sums in four tiles. A panel has for each block of steps two tiles one after the other, of A and of
/// B 2 KiB.
///
/// # Safety
/// Between [`configure`] and [`release`]; the panels hold `blocks` blocks, and the sums can be read and written.
pub(super) unsafe fn tile(tile: &PairsTile) {
    // SAFETY: the caller's promise: the addresses of all loads and stores are inside the panels and the sums.
    unsafe {
        sum_tiles!(
            tile,
            STEPS_FOR_ROWS,
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tileloadd tmm5, [{a} + {row} + 1024]",
            "dec {blocks}",
            "jz 6f",
            // Each tile of the next step is loaded as soon as the last product of this one has read its place.
            "4:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            ask_for_three_rows!(),
            ask_ahead!(),
            ask_for_half!(first, "{a}", 4096),
            ask_for_half!(second, "{a}", 4096),
            "tdpbf16ps tmm1, tmm4, tmm7",
            ask_for_half!(first, "{a}", 5120),
            "tileloadd tmm4, [{a} + {row} + 2048]",
            ask_for_half!(second, "{a}", 5120),
            "tdpbf16ps tmm2, tmm5, tmm6",
            ask_for_half!(first, "{b}", 4096),
            "tileloadd tmm6, [{b} + {row} + 2048]",
            ask_for_half!(second, "{b}", 4096),
            "tdpbf16ps tmm3, tmm5, tmm7",
            ask_for_lines!("{b}", 5120, 0 64 128 192 256),
            "tileloadd tmm7, [{b} + {row} + 3072]",
            ask_for_lines!("{b}", 5120, 320 384 448 512 576),
            "tileloadd tmm5, [{a} + {row} + 3072]",
            ask_for_lines!("{b}", 5120, 640 704 768 832 896 960),
            "add {a}, 2048",
            "add {b}, 2048",
            "dec {blocks}",
            "jnz 4b",
        );
    }
}

/// Multiplies both tiles of A with both of B, and loads the term of `A` or of `B` some bytes after its address for the
/// next products. Between the products two tiles of the next block are prefetched, some bytes after either address.
macro_rules! term_product {
    (A $term:literal, $next_a:literal, $next_b:literal) => {
        term_product!(@ ("tmm1, tmm4, tmm7" "tmm2, tmm5, tmm6") ("{a}" "tmm4" "tmm5") $term, $next_a, $next_b)
    };
    (B $term:literal, $next_a:literal, $next_b:literal) => {
        term_product!(@ ("tmm2, tmm5, tmm6" "tmm1, tmm4, tmm7") ("{b}" "tmm6" "tmm7") $term, $next_a, $next_b)
    };
    (@ ($second:literal $third:literal) ($side:literal $front:literal $back:literal) $term:literal, $a:literal, $b:literal) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            ask_for_three_rows!(),
            ask_ahead!(),
            ask_for_half!(first, "{a}", $a),
            "tdpbf16ps ", $second, "\n",
            "tileloadd ", $front, ", [", $side, " + {row} + ", $term, "]\n",
            ask_for_half!(second, "{a}", $a),
            "tdpbf16ps ", $third, "\n",
            ask_for_half!(first, "{b}", $b),
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            "tileloadd ", $back, ", [", $side, " + {row} + ", $term, " + 1024]\n",
            ask_for_half!(second, "{b}", $b),
        )
    };
}

/// Blocks whose products ask for three rows of C each, in which 32 rows are asked for.
const BLOCKS_FOR_ROWS: usize = 32usize.div_ceil(3 * 5);

/// Computes 32 x 32 sums of products of terms. A panel has for each block of steps two tiles of each term, of A and of
/// B 6 KiB. Between two products only the term that differs is loaded: 14 tiles for 24 products.
///
/// # Safety
/// As for [`tile`], for panels of terms.
pub(super) unsafe fn tile_of_terms(tile: &PairsTile) {
    // SAFETY: the caller's promise: the addresses of all loads and stores are inside the panels and the sums.
    unsafe {
        sum_tiles!(
            tile,
            BLOCKS_FOR_ROWS,
            "tileloadd tmm4, [{a} + {row} + 4096]",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tileloadd tmm5, [{a} + {row} + 5120]",
            // The products in their order; meanwhile the next block's terms are asked for.
            "4:",
            term_product!(A 2048, 10240, 6144),
            term_product!(B 2048, 11264, 7168),
            term_product!(A 0, 8192, 8192),
            term_product!(B 4096, 9216, 9216),
            term_product!(B 0, 6144, 10240),
            "dec {blocks}",
            "jz 6f",
            "tdpbf16ps tmm0, tmm4, tmm6",
            ask_for_half!(first, "{a}", 7168),
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a} + {row} + 10240]",
            ask_for_half!(second, "{a}", 7168),
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{b} + {row} + 6144]",
            ask_for_half!(first, "{b}", 11264),
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{b} + {row} + 7168]",
            "tileloadd tmm5, [{a} + {row} + 11264]",
            ask_for_half!(second, "{b}", 11264),
            "add {a}, 6144",
            "add {b}, 6144",
            "jmp 4b",
        );
    }
}
