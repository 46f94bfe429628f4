use device::{Op, Write};

use crate::vectors::file::File;
use crate::vectors::machine::*;

/// Lookups are copies; a row of the gradient adds as many rows as its token occurs.
#[test]
fn embedding_and_its_gradient() {
    let file = File::open(include_bytes!("embedding.safetensors"));
    let case = file.case("table");
    let ((rows, cols), weight) = (case.shape("weight", device::Dtype::F32), case.floats("weight"));
    // The whole table, and two ranks' unequal parts.
    for borders in [vec![0, rows], vec![0, 7, rows]] {
        let actual = on_all_sets(|machine| {
            let (tokens, dy) = (machine.input_ints(case, "tokens"), machine.input(case, "dy"));
            let out = machine.full(dy.rows, cols, 0.0);
            let mut gradient = Vec::new();
            for part in borders.windows(2) {
                let (first_row, num_rows) = (part[0], part[1] - part[0]);
                let table = machine.put(num_rows, &weight[part[0] * cols..part[1] * cols]);
                let dtable = machine.full(num_rows, cols, 0.0);
                machine.submit(Op::EmbeddingLookup { tokens, table, first_row, out, write: Write::Accumulate });
                machine.submit(Op::EmbeddingBackward { tokens, dy, scale: 1.0, first_row, untrained: None, dtable });
                gradient.extend(machine.read(dtable));
            }
            vec![machine.read(out), gradient]
        });
        assert_within("y", &actual[0], &case.doubles("y"), |_| 0.0);
        let (tokens, dy) = (case.ints("tokens"), case.widened("dy"));
        assert_within("dweight", &actual[1], &case.doubles("dweight"), |at| {
            let places = (0..tokens.len()).filter(|&place| tokens[place] as usize == at / cols);
            let sizes: Vec<f64> = places.map(|place| dy[place * cols + at % cols].abs()).collect();
            sizes.len() as f64 * U * sizes.iter().sum::<f64>()
        });
    }
}
