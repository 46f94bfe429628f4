use config::{Pairing, RotaryScaling};
use device::{Direction, Op};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

#[needs::cuda]
#[test]
fn tables_of_angles_have_the_bits_of_the_cpu() {
    assert_same(&["rotary"], tables);
}

pub fn tables(bench: &Bench) {
    let scalings = [
        RotaryScaling::Off,
        RotaryScaling::Linear { factor: 3.7 },
        RotaryScaling::Llama3 { factor: 8.0, low_turns: 1.0, high_turns: 4.0, original_context: 64 },
        RotaryScaling::Yarn { factor: 4.0, low_turns: 1.0, high_turns: 8.0, original_context: 64, magnitude: 1.25 },
    ];
    for (index, scaling) in scalings.into_iter().enumerate() {
        for (base, [positions, pairs]) in [(10_000.0, [300, 5]), (500_000.0, [40, 64]), (100.0, [7, 1])] {
            let mut case = Case::new(index as u64);
            let cos = case.reals(positions, pairs, index, Values::Plain);
            let sin = case.reals(positions, pairs, 0, Values::Plain);
            bench.compare(&case, &Op::RotaryTable { cos, sin, base, scaling });
        }
    }
}

#[needs::cuda]
#[test]
fn turned_queries_and_keys_have_the_bits_of_the_cpu() {
    assert_same(&["rotary"], turns);
}

pub fn turns(bench: &Bench) {
    let mut index = 0;
    let shapes = [[1, 1, 2, 1], [9, 3, 16, 8], [5, 2, 20, 7], [33, 1, 128, 64], [7, 3, 40, 12], [6, 2, 32, 16]];
    for (stored, [tokens, heads, head_dim, pairs]) in
        STORED.into_iter().flat_map(|stored| shapes.map(|shape| (stored, shape)))
    {
        for (pairing, direction) in [
            (Pairing::Half, Direction::Forward),
            (Pairing::Half, Direction::Backward),
            (Pairing::Interleaved, Direction::Forward),
            (Pairing::Interleaved, Direction::Backward),
        ] {
            let values = [Values::Plain, Values::Wild][index % 2];
            let mut case = Case::new(index as u64).storing(stored);
            // Rows of all three are aligned in some cases, and those of all but one in others.
            let gaps = [[0; 3], [1, 1, 1], [8, 4, 0], [3, 0, 0], [0, 1, 0], [0, 0, 1]][index % 6];
            let x = case.stored(tokens, heads * head_dim, gaps[0], values);
            let cos = case.reals(50, pairs, gaps[1], Values::Plain);
            let sin = case.reals(50, pairs, gaps[2], Values::Plain);
            let places: Vec<i32> = (0..tokens).map(|_| case.words.below(50) as i32).collect();
            let positions = case.ints(&places);
            bench.compare(&case, &Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction });
            index += 1;
        }
    }
}

#[needs::cuda]
#[test]
fn a_position_that_the_table_does_not_have_is_a_fault() {
    for position in [50, -1] {
        let bench = Bench::of(&["rotary"]);
        let mut case = Case::new(0);
        let x = case.reals(2, 8, 0, Values::Plain);
        let [cos, sin] = [(); 2].map(|()| case.reals(50, 4, 0, Values::Plain));
        let positions = case.ints(&[0, position]);
        let (pairing, direction) = (Pairing::Half, Direction::Forward);
        let error = bench.failure(&case, &Op::Rotary { x, head_dim: 8, positions, cos, sin, pairing, direction });
        assert!(error.contains("a fault in a kernel") && error.contains("rotary of F32[2, 8] @0"), "{error}");
    }
}
