//! Attention of cuDNN on the GPU in software, opened by name as NVIDIA's library is, against the library in process.

use std::sync::Arc;

use device::{Bf16, Element as _, F16};
use gpu::{
    AttentionLibrary, AttentionPass, AttentionPlaces, AttentionStrides, CausalAttention, DevicePointer, Driver,
    DriverErrorKind, Gpu, MatrixElement, StreamHandle,
};
use nvidia::{Search, cudnn, driver};
use soft_products::SoftAttention;
use softgpu::{Settings, SoftDriver};

use crate::tests::soft_library::folder;

/// Sequences, tokens, heads, key heads, and channels of a head.
const SIZES: [[u64; 5]; 3] = [[2, 8, 2, 2, 8], [1, 17, 4, 2, 16], [3, 5, 3, 1, 24]];

/// A pass, with queries, keys and values side by side, and a column between their rows and the next.
fn attention(pass: usize, element: MatrixElement, sizes: [u64; 5]) -> CausalAttention {
    let [sequences, length, heads, kv_heads, head_dim] = sizes;
    let (all, own) = ((heads + 2 * kv_heads) * head_dim + 8, heads * head_dim);
    let pass = [AttentionPass::Forward, AttentionPass::Backward([own, all, all, all])][pass];
    let strides = AttentionStrides { inputs: [all, all, all, own], log_sum_exp: heads };
    CausalAttention { pass, element, sequences, length, heads, kv_heads, head_dim, strides }
}

/// Both passes by a library: the bytes of outputs, log-sum-exps and gradients.
fn computed(gpu: &dyn Gpu, library: &dyn AttentionLibrary, element: MatrixElement, sizes: [u64; 5]) -> Vec<u8> {
    let [forward, backward] = [0, 1].map(|pass| attention(pass, element, sizes));
    let [sequences, length, heads, kv_heads, head_dim] = sizes.map(|size| size as usize);
    let [all, own] = [forward.strides.inputs[0], forward.strides.inputs[3]].map(|stride| stride as usize);
    let rows = sequences * length;
    // Queries, keys and values; outputs; log-sum-exps; gradients of outputs; all other gradients.
    let counts = [rows * all, rows * own, 2 * rows * heads, rows * own, rows * all];
    let starts: Vec<usize> = (0..counts.len()).map(|place| 2 * counts[..place].iter().sum::<usize>()).collect();
    let starts: Vec<usize> = starts.into_iter().map(|start| start.next_multiple_of(16)).collect();
    let bytes = starts[4] + 2 * counts[4];
    let numbers = (0..bytes / 2).map(|place| ((place * 7919 % 251) as f32 - 125.0) / 64.0);
    let drawn: Vec<u8> = numbers
        .flat_map(|number| match element {
            MatrixElement::F16 => F16::narrow(number).0.to_le_bytes(),
            MatrixElement::Bf16 | MatrixElement::F32 => Bf16::narrow(number).0.to_le_bytes(),
        })
        .collect();
    let stream = gpu.create_stream().expect("a stream");
    let (memory, pinned) = (gpu.allocate(bytes).expect("memory"), gpu.allocate_pinned(bytes).expect("memory"));
    gpu.write_pinned(pinned, 0, &drawn).expect("written");
    gpu.upload(stream, memory, pinned, 0, bytes).expect("a copy");
    let at = |tensor: usize, col: usize| memory.offset(starts[tensor] + 2 * col);
    let side_by_side = |tensor| [0, heads, heads + kv_heads].map(|head| at(tensor, head * head_dim));
    let ([q, k, v], [dq, dk, dv]) = (side_by_side(0), side_by_side(4));
    let places =
        AttentionPlaces { inputs: [q, k, v, at(1, 0)], log_sum_exp: at(2, 0), gradients: [at(3, 0), dq, dk, dv] };
    for pass in [forward, backward] {
        let workspace = library.workspace_bytes(&pass).expect("an answer").expect("the attention");
        let workspace = gpu.allocate(workspace).expect("memory");
        attend(gpu, library, stream, &pass, &places, workspace);
    }
    gpu.download(stream, pinned, 0, memory, bytes).expect("a copy");
    gpu.synchronize(stream).expect("its end");
    let mut result = vec![0; bytes];
    gpu.read_pinned(pinned, 0, &mut result).expect("read");
    assert!(result[..starts[1]] == drawn[..starts[1]] && result[starts[1]..] != drawn[starts[1]..]);
    result
}

fn attend(
    gpu: &dyn Gpu,
    library: &dyn AttentionLibrary,
    stream: StreamHandle,
    pass: &CausalAttention,
    places: &AttentionPlaces,
    workspace: DevicePointer,
) {
    library.attend(stream, pass, 0.3, places, workspace).unwrap_or_else(|error| panic!("{pass:?}: {error}"));
    gpu.synchronize(stream).unwrap_or_else(|error| panic!("{pass:?}: {error}"));
}

#[test]
fn attention_has_the_bits_of_the_library_in_process_and_others_are_refused() {
    let folder = folder("attention", "", &["libcuda.so.1", "libcudnn.so.9"]);
    let search = Search::only([folder.clone()]);
    let driver = driver::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    let library = cudnn::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_dir_all(&folder).expect("removed");
    let gpu = driver.open(0).expect("a GPU");
    let handle = cudnn::Handle::open(Arc::new(library), Arc::clone(&gpu)).expect("a handle");
    let own = SoftDriver::new(1, Settings::default());
    let own_gpu = own.open(0).expect("a GPU");
    let own_library = SoftAttention::new(own.opened(0).expect("it is open"));
    for element in [MatrixElement::Bf16, MatrixElement::F16] {
        for sizes in SIZES {
            let expected = computed(&*own_gpu, &own_library, element, sizes);
            assert!(computed(&*gpu, &handle, element, sizes) == expected, "{element:?}, {sizes:?}");
        }
    }
    // Single precision, and heads that are too wide.
    for (element, width) in [(MatrixElement::F32, 8), (MatrixElement::Bf16, 256)] {
        let pass = attention(0, element, [1, 8, 2, 2, width]);
        assert_eq!(handle.workspace_bytes(&pass), Ok(None));
        let places = [DevicePointer(0); 4];
        let places = AttentionPlaces { inputs: places, log_sum_exp: DevicePointer(0), gradients: places };
        let stream = gpu.create_stream().expect("a stream");
        let refused = handle.attend(stream, &pass, 1.0, &places, DevicePointer(0));
        assert_eq!(refused.map_err(|error| error.kind), Err(DriverErrorKind::InvalidArgument));
    }
}
