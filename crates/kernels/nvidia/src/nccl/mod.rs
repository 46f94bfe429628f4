//! NCCL: collectives between GPUs.

mod calls;
mod communicator;
mod functions;

pub use communicator::{CollectiveError, Communicator, Element, GroupId, Library, Progress, Window};

pub(crate) fn header() -> crate::header::Header {
    crate::header::Header {
        includes: &["nccl.h"],
        functions: functions::Functions::declarations(),
        constants: functions::constants(),
        layouts: functions::layouts(),
    }
}
