use cpu::attention::Attention;
use device::{AttentionGradients, AttentionOperands, AttentionShape, Op};

use crate::attention::reference::{Bounded, Operands, Products, compute};
use crate::vectors::file::{Case, File};
use crate::vectors::machine::*;

fn shape(case: Case) -> AttentionShape {
    let sizes: Vec<usize> = case.ints("sizes").iter().map(|&size| size as usize).collect();
    let [sequences, sequence_length, heads, kv_heads, head_dim] = sizes[..] else { panic!("five sizes: {sizes:?}") };
    AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim }
}

fn scale(shape: &AttentionShape) -> f32 {
    (1.0 / (shape.head_dim as f64).sqrt()) as f32
}

fn results(machine: &Machine, case: Case) -> Vec<Vec<f32>> {
    let shape = shape(case);
    let [q, k, v, dout] = ["q", "k", "v", "dy"].map(|name| machine.input(case, name));
    let visible = machine.input_ints(case, "visible");
    let (out, log_sum_exp) = (machine.empty(q.rows, q.cols), machine.empty(q.rows, shape.heads));
    let [dq, dk, dv] = [q, k, v].map(|like| machine.empty(like.rows, like.cols));
    let (scale, alibi, dropout) = (scale(&shape), None, None);
    let operands = AttentionOperands {
        shape,
        places: None,
        q,
        k,
        v,
        visible,
        window: None,
        scale,
        soft_cap: None,
        alibi,
        dropout,
        out,
        log_sum_exp,
    };
    machine.submit(Op::Attention { operands });
    let key_sums = machine.empty(2 * q.rows * shape.kv_heads, shape.head_dim);
    let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
    machine.submit(Op::AttentionBackward { operands, gradients });
    [out, log_sum_exp, dq, dk, dv].map(|tensor| machine.read(tensor)).to_vec()
}

/// PyTorch, the kernels and the reference that the kernels' own tests use agree: PyTorch and the reference as sums of
/// 40 doubles do, the kernels within the reference's bounds. The scale 1 / sqrt(d) is rounded to single precision on
/// all sides.
#[test]
fn attention_and_its_gradients() {
    let file = File::open(include_bytes!("attention.safetensors"));
    for name in ["causal", "documents", "prefix", "multi_query"] {
        let case = file.case(name);
        let actual = on_all_sets(|machine| results(machine, case));
        let shape = shape(case);
        let intervals = case.ints("visible");
        let visible: &[[i32; 2]] = bytemuck::cast_slice(&intervals);
        let operands =
            Operands { q: case.widened("q"), k: case.widened("k"), v: case.widened("v"), dout: case.widened("dy") };
        let attention = Attention {
            shape,
            visible,
            first_key: None,
            scale: scale(&shape),
            soft_cap: None,
            alibi: None,
            dropout: None,
        };
        let reference = compute(&attention, &operands, Products::Chained);
        let expected = [
            ("y", reference.out),
            ("log_sum_exp", reference.log_sum_exp),
            ("dq", reference.dq),
            ("dk", reference.dk),
            ("dv", reference.dv),
        ];
        for (actual, (tensor, bounded)) in actual.iter().zip(expected) {
            check(&format!("{name} {tensor}"), actual, &case.doubles(tensor), bounded);
        }
    }
}

fn check(what: &str, actual: &[f32], exact: &[f64], reference: Bounded) {
    assert_eq!(exact.len(), reference.values.len(), "{what}");
    let size = exact.iter().fold(0.0, |size: f64, value| size.max(value.abs()));
    let farthest = exact.iter().zip(&reference.values).fold(0.0, |far: f64, (a, b)| far.max((a - b).abs()));
    assert!(farthest <= 1e-13 * size, "{what}: the reference is {farthest:e} from PyTorch, of size {size:e}");
    println!("{what}: the reference is within {farthest:.1e} of PyTorch");
    let share = Bounded { values: exact.to_vec(), bounds: reference.bounds }.assert_holds(actual, what);
    println!("{what}: largest error is {share:.3} of its bound");
}
