//! The layers of a model, run on a device that only records: operations, collectives and bytes of every unit.

#![forbid(unsafe_code)]

mod recording;
mod streams;
mod unit_records;

pub use recording::{RecordCase, RecordError, UnitRecord, record_unit};
pub use streams::Enqueued;
pub use unit_records::{UnitRecords, footprints};
