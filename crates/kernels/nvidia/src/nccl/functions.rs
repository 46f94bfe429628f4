//! The functions of NCCL.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

use crate::header::Layout;
use crate::table::{CType, functions, named};

named! {
    /// The result of every call.
    Status(c_uint) = "ncclResult_t";
    RawCommunicator(*mut c_void) = "ncclComm_t";
    /// The type of elements.
    DataType(c_uint) = "ncclDataType_t";
    /// How elements are reduced.
    Reduction(c_uint) = "ncclRedOp_t";
    /// A queue of the runtime, which is one of the driver.
    Stream(*mut c_void) = "cudaStream_t";
}

/// Names a group of ranks that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawId {
    pub(crate) internal: [c_char; 128],
}

/// Settings of a communicator, as far as version 2.28 has them. The library fills what it has in addition.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) blocking: c_int,
    pub(crate) cluster: c_int,
    pub(crate) fewest_blocks: c_int,
    pub(crate) most_blocks: c_int,
    pub(crate) network: *const c_char,
    pub(crate) split_share: c_int,
    pub(crate) traffic_class: c_int,
    pub(crate) name: *const c_char,
    pub(crate) collective_network: c_int,
    pub(crate) block_policy: c_int,
    pub(crate) shrink_share: c_int,
    pub(crate) multicast_blocks: c_int,
}

/// A setting that is not made.
pub(crate) const UNDEFINED: c_int = c_int::MIN;
pub(crate) const MAGIC: c_uint = 0xcafe_beef;
/// The version whose settings [`Config`] has.
pub(crate) const CONFIG_VERSION: c_uint = 22_807;

impl CType for RawId {
    fn c() -> String {
        "ncclUniqueId".into()
    }
}

impl CType for Config {
    fn c() -> String {
        "ncclConfig_t".into()
    }
}

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const IN_PROGRESS: Status = Status(7);
pub(crate) const SUM: Reduction = Reduction(0);
pub(crate) const BYTES: DataType = DataType(1);
pub(crate) const I64: DataType = DataType(4);
pub(crate) const F32: DataType = DataType(7);
pub(crate) const BF16: DataType = DataType(9);
pub(crate) const NO_COPY_BLOCKS: c_int = 2;

functions! {
    /// See the module.
    Functions {
        version = "ncclGetVersion": (*mut c_int) -> Status;
        error_text = "ncclGetErrorString": (Status) -> *const c_char;
        last_error = "ncclGetLastError": (RawCommunicator) -> *const c_char;
        unique_id = "ncclGetUniqueId": (*mut RawId) -> Status;
        init = "ncclCommInitRankConfig": (*mut RawCommunicator, c_int, RawId, c_int, *mut Config) -> Status;
        finalize = "ncclCommFinalize": (RawCommunicator) -> Status;
        destroy = "ncclCommDestroy": (RawCommunicator) -> Status;
        abort = "ncclCommAbort": (RawCommunicator) -> Status;
        async_error = "ncclCommGetAsyncError": (RawCommunicator, *mut Status) -> Status;
        group_start = "ncclGroupStart": () -> Status;
        group_end = "ncclGroupEnd": () -> Status;
    }
}

pub(super) fn constants() -> Vec<(&'static str, i64)> {
    let unsigned = [
        ("ncclSuccess", SUCCESS.0),
        ("ncclInProgress", IN_PROGRESS.0),
        ("ncclSum", SUM.0),
        ("ncclUint8", BYTES.0),
        ("ncclInt64", I64.0),
        ("ncclFloat32", F32.0),
        ("ncclBfloat16", BF16.0),
        // Its name is newer than the number.
        ("[]{ ncclConfig_t config = NCCL_CONFIG_INITIALIZER; return config.magic; }()", MAGIC),
        ("NCCL_VERSION(2, 28, 7)", CONFIG_VERSION),
    ];
    let signed = [("NCCL_CONFIG_UNDEF_INT", UNDEFINED), ("NCCL_CTA_POLICY_ZERO", NO_COPY_BLOCKS)];
    let unsigned = unsigned.into_iter().map(|(name, value)| (name, i64::from(value)));
    unsigned.chain(signed.into_iter().map(|(name, value)| (name, i64::from(value)))).collect()
}

pub(super) fn layouts() -> Vec<Layout> {
    vec![
        Layout {
            name: "ncclUniqueId",
            size: Some(size_of::<RawId>()),
            fields: vec![("internal", offset_of!(RawId, internal))],
        },
        Layout {
            name: "ncclConfig_t",
            // The library's may be longer; it reads as much as `size` says.
            size: None,
            fields: vec![
                ("size", offset_of!(Config, size)),
                ("magic", offset_of!(Config, magic)),
                ("version", offset_of!(Config, version)),
                ("blocking", offset_of!(Config, blocking)),
                ("cgaClusterSize", offset_of!(Config, cluster)),
                ("minCTAs", offset_of!(Config, fewest_blocks)),
                ("maxCTAs", offset_of!(Config, most_blocks)),
                ("netName", offset_of!(Config, network)),
                ("splitShare", offset_of!(Config, split_share)),
                ("trafficClass", offset_of!(Config, traffic_class)),
                ("commName", offset_of!(Config, name)),
                ("collnetEnable", offset_of!(Config, collective_network)),
                ("CTAPolicy", offset_of!(Config, block_policy)),
                ("shrinkShare", offset_of!(Config, shrink_share)),
                ("nvlsCTAs", offset_of!(Config, multicast_blocks)),
                // The next one: nothing is between it and the end of ours.
                ("nChannelsPerNetPeer", size_of::<Config>()),
            ],
        },
    ]
}
