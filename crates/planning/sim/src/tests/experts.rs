//! Products of groups of rows, as kernels.

use cluster::{Cluster, named};
use comm::Operation;
use config::{RunConfig, UnitClass};
use device::{Dtype, ExpertOp, ExpertRows, Orientation, Tensor, Write};
use mesh::Axis;
use model::MicrobatchShape;
use program::PassKind;
use record::{RecordCase, UnitRecords};

use crate::{Kernel, Product, RecordedUnits, kernel_ns, kernels_of};

use super::training_case::training_case;

/// Of 100 possible rows 60 are expected, in 4 groups.
#[test]
fn a_product_of_groups_is_a_batch_of_equal_products() {
    let tensor = |rows: usize, cols: usize, dtype| Tensor::new(0, rows, cols, dtype);
    let rows = ExpertRows {
        places: tensor(50, 2, Dtype::I32),
        slots: tensor(1, 100, Dtype::I32),
        offsets: tensor(1, 5, Dtype::I32),
        expected: 60,
    };
    let kernel = |orientation, [a, b, out]: [(usize, usize); 3]| {
        let [a, b, out] = [a, b, out].map(|(rows, cols)| tensor(rows, cols, Dtype::Bf16));
        kernels_of(&ExpertOp::MatMul { orientation, a, b, out, rows, tokens: None, write: Write::Assign }.into())
    };
    // Rows of all three matrices are whole cache lines.
    let product = |m, n, k| {
        let product = Product::new(4, [m, n, k], [2, 2], None);
        vec![Kernel::Product(Product { row_multiple_bytes: 128, ..product })]
    };
    assert_eq!(kernel(Orientation::Nt, [(100, 64), (4 * 128, 64), (100, 128)]), product(15, 128, 64));
    assert_eq!(kernel(Orientation::Nn, [(100, 128), (4 * 128, 64), (100, 64)]), product(15, 64, 128));
    assert_eq!(kernel(Orientation::Tn, [(100, 128), (100, 64), (4 * 128, 64)]), product(128, 64, 15));
}

/// Each expert begins tiles of its own: a row more than whole tiles costs tiles for all experts.
#[test]
fn rows_of_each_expert_are_priced_in_whole_tiles() {
    let text = named("a100-80g-dgx").expect("a profile");
    let cluster = Cluster::from_toml(text).expect("a cluster");
    let experts = 64;
    let price_ns = |rows_of_expert: usize| {
        let tensor = |rows: usize, cols: usize, dtype| Tensor::new(0, rows, cols, dtype);
        let expected = experts * rows_of_expert;
        let rows = ExpertRows {
            places: tensor(expected, 1, Dtype::I32),
            slots: tensor(1, expected, Dtype::I32),
            offsets: tensor(1, experts + 1, Dtype::I32),
            expected,
        };
        let [a, b, out] = [(expected, 2048), (experts * 2048, 2048), (expected, 2048)]
            .map(|(rows, cols)| tensor(rows, cols, Dtype::Bf16));
        let (orientation, tokens, write) = (Orientation::Nt, None, Write::Assign);
        let op = ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write };
        kernels_of(&op.into()).iter().map(|kernel| kernel_ns(&cluster, kernel)).sum::<f64>()
    };
    let [whole, one_more, next] = [512, 513, 576].map(price_ns);
    assert!(one_more > 1.05 * whole, "{one_more} ns with one row more than {whole} ns");
    assert!((next - one_more).abs() < 1e-9 * next, "{one_more} and {next} ns have equally many tiles");
}

/// A rank with more rows has more to multiply and to exchange, and no more of anything else. The operations of its
/// model stay.
#[test]
fn a_load_multiplies_rows_of_experts_and_those_between_ranks() {
    let keys = ["model.experts=8", "model.expert_hidden=256", "model.biases=\"attention\""].map(String::from);
    let RunConfig { model, .. } = RunConfig::load("", "", &keys).expect("legal");
    let records = UnitRecords::new(RecordCase {
        ep: 2,
        write: Write::Assign,
        ..training_case(&model, MicrobatchShape::whole(2, 64))
    });
    let records = records.expect("recorded");
    let [balanced, loaded] = [1.0, 1.5].map(|load| RecordedUnits::of_load(&records, None, load));
    assert_eq!(balanced, RecordedUnits::new(&records, None));
    let cluster = Cluster::from_toml(named("a100-80g-dgx").expect("a profile")).expect("a cluster");
    for kind in [PassKind::Forward, PassKind::BackwardInput, PassKind::BackwardWeight] {
        let [balanced, loaded] = [&balanced, &loaded].map(|units| units.units[UnitClass::Layer(0)].of(kind));
        assert_eq!((balanced.flops, balanced.kernels.len()), (loaded.flops, loaded.kernels.len()));
        let ns = |kernel: &Kernel| kernel_ns(&cluster, kernel);
        let pairs = || balanced.kernels.iter().zip(&loaded.kernels);
        assert!(pairs().all(|(one, more)| ns(one) <= ns(more)) && pairs().any(|(one, more)| one == more), "{kind:?}");
        assert!(pairs().any(|(one, more)| matches!(one, Kernel::Product(_)) && one != more), "{kind:?}");
        let exchanged = balanced.collectives.iter().zip(&loaded.collectives);
        for (one, more) in exchanged {
            let is_of_rows = one.operation == Operation::AllToAll && one.axes == Axis::Ep.into();
            assert_eq!(more.bytes, if is_of_rows { one.bytes * 3 / 2 } else { one.bytes }, "{one:?}");
        }
        assert!(balanced.collectives.iter().any(|call| call.operation == Operation::AllToAll), "{kind:?}");
    }
    let dense = [&balanced, &loaded].map(|units| units.units[UnitClass::Head].clone());
    assert_eq!(dense[0], dense[1]);
}
