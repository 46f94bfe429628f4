//! Whether the machine has tiles of AMX, and the system permits them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Bits of CPUID leaf 7, EDX.
const AMX_BF16: u32 = 1 << 22;
const AMX_TILE: u32 = 1 << 24;
/// CPUID leaf 1, ECX: the system has enabled XGETBV.
const OSXSAVE: u32 = 1 << 27;
/// Bits of XCR0: the system saves the configuration of tiles, and tiles.
const XCR0_TILES: u64 = 1 << 17 | 1 << 18;

/// Whether this process may use tiles of bf16 on this machine. The system is asked once.
pub(crate) fn is_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| processor_has_tiles() && system_permits_tiles())
}

fn processor_has_tiles() -> bool {
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that the instruction exists; register 0 always does.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
    let enabled = u64::from(high) << 32 | u64::from(low);
    features & AMX_BF16 != 0 && features & AMX_TILE != 0 && enabled & XCR0_TILES == XCR0_TILES
}

/// Linux saves the 8 KiB of tiles only for processes that have asked for it.
#[cfg(target_os = "linux")]
fn system_permits_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call has no memory operands; it only adds to what the system saves of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Not known of other systems.
#[cfg(not(target_os = "linux"))]
fn system_permits_tiles() -> bool {
    false
}
