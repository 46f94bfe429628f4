//! NCCL: collectives between GPUs.

mod calls;
mod collectives;
mod communicator;
mod functions;

pub use collectives::Messages;
pub use communicator::{CollectiveError, Communicator, Element, GroupId, Library, Progress};

pub(crate) fn header() -> crate::header::Header {
    crate::header::Header {
        includes: &["nccl.h"],
        functions: [functions::Functions::declarations(), collectives::Collectives::declarations()].concat(),
        constants: functions::constants(),
        layouts: functions::layouts(),
    }
}
