use config::{Pairing, RotaryScaling};
use device::{Direction, Op};

use crate::vectors::file::File;
use crate::vectors::machine::*;

const HEAD_DIM: usize = 12;

/// Tables are rounded once; a product and a fused sum of it with another are rounded once each. So each of the two
/// terms is off by at most 3 roundings of the two channels' size.
#[test]
fn rotations_and_their_gradients() {
    let file = File::open(include_bytes!("rotary.safetensors"));
    for (style, pairing) in [("half", Pairing::Half), ("interleaved", Pairing::Interleaved)] {
        for turned in [12, 6] {
            let name = format!("{style}_{turned}");
            let case = file.case(&name);
            let actual = on_all_sets(|machine| {
                let (cos, sin) = (machine.empty(512, turned / 2), machine.empty(512, turned / 2));
                machine.submit(Op::RotaryTable { cos, sin, base: case.floats("base")[0], scaling: RotaryScaling::Off });
                let positions = machine.input_ints(case, "positions");
                let turn = |name, direction| {
                    let x = machine.input(case, name);
                    machine.submit(Op::Rotary { x, head_dim: HEAD_DIM, positions, cos, sin, pairing, direction });
                    machine.read(x)
                };
                vec![turn("x", Direction::Forward), turn("dy", Direction::Backward)]
            });
            let partner = |at: usize| {
                let (head, channel) = (at / HEAD_DIM * HEAD_DIM, at % HEAD_DIM);
                head + match pairing {
                    _ if channel >= turned => channel,
                    Pairing::Half => (channel + turned / 2) % turned,
                    Pairing::Interleaved => channel ^ 1,
                }
            };
            for (index, (input, output)) in [("x", "y"), ("dy", "dx")].into_iter().enumerate() {
                let values = case.widened(input);
                assert_within(&format!("{name} {output}"), &actual[index], &case.doubles(output), |at| {
                    let is_turned = at % HEAD_DIM < turned;
                    if is_turned { 3.0 * U * (values[at].abs() + values[partner(at)].abs()) } else { 0.0 }
                });
            }
        }
    }
}
