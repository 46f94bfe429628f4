//! Failures on a GPU, as they are reported.

use device::DeviceError;
use gpu::{Capability, DeviceFacts, DriverError, DriverErrorKind};
use gpu_rank::on_gpu;

#[test]
fn a_failure_names_the_gpu_once_with_the_reason_and_a_remedy() {
    let facts = DeviceFacts {
        ordinal: 3,
        name: "NVIDIA H100".into(),
        capability: Capability { major: 9, minor: 0 },
        memory_bytes: 0,
        multiprocessors: 132,
        max_shared_bytes: 0,
        uuid: [0; 16],
        bus_id: String::new(),
    };
    let cause = DriverError { call: "cuLaunchKernel", kind: DriverErrorKind::Lost, text: "code 719".into() };
    let error = DeviceError::Accelerator { what: "fill of F32[1, 2] @0".into(), cause: Box::new(cause) };
    let said = on_gpu(&facts, on_gpu(&facts, error)).to_string();
    assert_eq!(
        said,
        "GPU 3 (NVIDIA H100): fill of F32[1, 2] @0: cuLaunchKernel: the GPU is lost: code 719; the system's log names the \
         reason (Xid); reset or leave out the GPU. The newest checkpoint resumes the run"
    );
    let other = DeviceError::Shape { op: "fill", what: "no".into() };
    assert_eq!(on_gpu(&facts, other).to_string(), "fill: no");
}
