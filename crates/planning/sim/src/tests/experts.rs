//! Products of groups of rows, as kernels.

use device::{Dtype, ExpertOp, ExpertRows, Orientation, Tensor, Write};

use crate::{Kernel, Product, kernels_of};

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
