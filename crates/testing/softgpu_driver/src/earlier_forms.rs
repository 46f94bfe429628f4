//! Forms of functions that drivers have had before.

use crate::status::Status;
use crate::streams::cuEventElapsedTime_v2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, from: u64, to: u64) -> Status {
    // SAFETY: the interface of both forms is the same.
    unsafe { cuEventElapsedTime_v2(ms, from, to) }
}
