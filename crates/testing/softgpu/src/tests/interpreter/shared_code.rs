//! Texts that several GPUs share: decoded once, with variables of each GPU's own.

use gpu::{Gpu, LaunchShape, ModuleImage};
use softgpu::{Settings, SharedCode, SoftGpu};
use std::sync::Arc;

use crate::tests::interpreter::machine::{Machine, threads_kernel};

/// Adds 1 to a variable that begins with 5, and returns the sum.
fn counting() -> String {
    let body = "ld.global.u32 %r1, [counter];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [counter], %r1;\n\
                st.global.u32 [%d0], %r1;\nret;";
    threads_kernel(".global .align 4 .u32 counter = 5;", body)
}

fn machine(code: &SharedCode) -> Machine {
    let gpu = Arc::new(SoftGpu::with_code(0, Settings::default(), code.clone()));
    let stream = gpu.create_stream().expect("a stream");
    Machine { gpu, stream }
}

fn count(machine: &Machine, ptx: &str) -> u32 {
    let out = machine.upload(&[0; 4]);
    machine.launch(machine.function(ptx, "k"), LaunchShape::linear(1, 1), &[out]);
    let bytes = machine.download(out, 4).expect("a result");
    u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
}

#[test]
fn gpus_that_share_code_have_variables_of_their_own() {
    let code = SharedCode::default();
    let (first, second) = (machine(&code), machine(&code));
    // The second GPU has other addresses.
    second.upload(&[0; 4096]);
    let ptx = counting();
    assert_eq!(
        [count(&first, &ptx), count(&second, &ptx), count(&first, &ptx)],
        [6, 6, 6],
        "each loading begins again"
    );
    let function = first.function(&ptx, "k");
    let out = first.upload(&[0; 4]);
    for expected in [6u32, 7, 8] {
        first.launch(function, LaunchShape::linear(1, 1), &[out]);
        assert_eq!(first.download(out, 4).expect("a result"), expected.to_le_bytes());
    }
}

#[test]
fn a_text_that_is_refused_is_refused_by_each_gpu() {
    let code = SharedCode::default();
    let ptx = threads_kernel("", "add.u32 %r1, %r1, [unknown];\nret;");
    let refused = |machine: &Machine| machine.gpu.load(ModuleImage::Ptx(&ptx)).expect_err("refused").to_string();
    let (first, second) = (machine(&code), machine(&code));
    assert_eq!(refused(&first), refused(&second));
}
