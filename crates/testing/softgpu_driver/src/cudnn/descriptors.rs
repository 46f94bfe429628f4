//! Kinds of descriptors with their parts, as bytes.

use std::collections::BTreeMap;

use crate::handles::Handles;

/// Results of calls: 0 is success.
pub type Status = u32;

pub const SUCCESS: Status = 0;
pub const NOT_INITIALIZED: Status = 1001;
pub const BAD_PARAMETER: Status = 2000;
pub const NOT_SUPPORTED: Status = 3000;
pub const EXECUTION_FAILED: Status = 5000;

/// Kinds of descriptors.
pub mod kind {
    pub const ENGINE: u32 = 2;
    pub const ENGINE_CONFIG: u32 = 3;
    pub const HEURISTIC: u32 = 4;
    pub const PLAN: u32 = 5;
    pub const POINTWISE_OPERATION: u32 = 13;
    pub const GRAPH: u32 = 15;
    pub const PRODUCT_OPERATION: u32 = 19;
    pub const REDUCTION_OPERATION: u32 = 22;
    pub const RESHAPE_OPERATION: u32 = 31;
    pub const GPU_PROPERTIES: u32 = 38;
}

/// Parts of descriptors.
pub mod part {
    pub const POINTWISE_MODE: u32 = 0;
    pub const POINTWISE_AXIS: u32 = 9;
    pub const HEURISTIC_MODE: u32 = 200;
    pub const HEURISTIC_GRAPH: u32 = 201;
    pub const HEURISTIC_RESULTS: u32 = 202;
    pub const CONFIG_ENGINE: u32 = 300;
    pub const PLAN_CONFIG: u32 = 401;
    pub const PLAN_WORKSPACE: u32 = 402;
    pub const POINTWISE_DESCRIPTION: u32 = 750;
    pub const POINTWISE_X: u32 = 751;
    pub const POINTWISE_B: u32 = 752;
    pub const POINTWISE_Y: u32 = 753;
    pub const POINTWISE_T: u32 = 758;
    pub const GRAPH_OPERATIONS: u32 = 801;
    pub const TENSOR_TYPE: u32 = 901;
    pub const TENSOR_DIMS: u32 = 902;
    pub const TENSOR_STRIDES: u32 = 903;
    pub const TENSOR_ID: u32 = 906;
    pub const PACK_IDS: u32 = 1000;
    pub const PACK_ADDRESSES: u32 = 1001;
    pub const PACK_WORKSPACE: u32 = 1003;
    /// The graph of an engine or its configuration, which callers do not see.
    pub const ENGINE_GRAPH: u32 = 1300;
    pub const ENGINE_NUMBER: u32 = 1301;
    pub const ENGINE_NOTES: u32 = 1303;
    pub const PRODUCT_A: u32 = 1520;
    pub const PRODUCT_B: u32 = 1521;
    pub const PRODUCT_C: u32 = 1522;
    pub const REDUCTION_MODE: u32 = 1600;
    pub const REDUCTION_X: u32 = 1610;
    pub const REDUCTION_Y: u32 = 1611;
    pub const REDUCTION_DESCRIPTION: u32 = 1612;
    pub const RESHAPE_X: u32 = 2200;
    pub const RESHAPE_Y: u32 = 2201;
    pub const GPU_HANDLE: u32 = 2701;
}

/// Bytes of a value by the number of its type.
pub fn bytes_of(type_: u32) -> Option<usize> {
    match type_ {
        // Flags and characters, enumerations, numbers and addresses.
        2 | 24 => Some(1),
        1 | 8 | 11 | 14 | 18 => Some(4),
        0 | 3 | 6 | 15 => Some(8),
        _ => None,
    }
}

/// A descriptor.
#[derive(Clone, Debug)]
pub struct Descriptor {
    pub kind: u32,
    pub parts: BTreeMap<u32, Vec<u8>>,
    pub is_final: bool,
}

/// All descriptors.
#[derive(Debug, Default)]
pub struct Descriptors(pub Handles<Descriptor>);

impl Descriptors {
    /// The numbers, addresses or descriptors of a part.
    ///
    /// # Errors
    /// A descriptor that does not exist; a part that is not set.
    pub fn all(&self, descriptor: u64, part: u32) -> Result<Vec<i64>, Status> {
        let bytes = self.0.get(descriptor).and_then(|found| found.parts.get(&part)).ok_or(BAD_PARAMETER)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    /// Four numbers of a part.
    ///
    /// # Errors
    /// The errors of [`Descriptors::all`]; another count.
    pub fn four(&self, descriptor: u64, part: u32) -> Result<[i64; 4], Status> {
        self.all(descriptor, part)?.try_into().map_err(|_| BAD_PARAMETER)
    }

    /// The only number of a part.
    ///
    /// # Errors
    /// The errors of [`Descriptors::four`].
    pub fn one(&self, descriptor: u64, part: u32) -> Result<u64, Status> {
        match *self.all(descriptor, part)? {
            [number] => Ok(number as u64),
            _ => Err(BAD_PARAMETER),
        }
    }

    /// The value of an enumeration.
    ///
    /// # Errors
    /// The errors of [`Descriptors::all`].
    pub fn choice(&self, descriptor: u64, part: u32) -> Result<i32, Status> {
        let bytes = self.0.get(descriptor).and_then(|found| found.parts.get(&part)).ok_or(BAD_PARAMETER)?;
        bytes.first_chunk().map(|bytes| i32::from_le_bytes(*bytes)).ok_or(BAD_PARAMETER)
    }
}
