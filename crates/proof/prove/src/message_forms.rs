//! Types of other crates as they are in messages between processes.

use std::cmp::Reverse;

use config::Unit;
use device::Dtype;
use serde::{Deserialize, Serialize};

/// [`Unit`], as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Unit")]
pub enum UnitForm {
    Table,
    Embedding,
    Layer(u32),
    Head,
    Adapters(u32),
    Experts(u32),
}

/// A unit in descending order, as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Reverse<Unit>")]
pub struct ReverseForm(#[serde(with = "UnitForm")] pub Unit);

/// [`Dtype`], as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Dtype")]
pub enum DtypeForm {
    F32,
    Bf16,
    F16,
    I32,
    I64,
}
