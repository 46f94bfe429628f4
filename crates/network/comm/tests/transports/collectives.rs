//! Every collective against a serial oracle that takes sums in rank order, bit for bit.

use crate::worlds::{Wire, bits, communicator, input, patient, run, run_within, serial};
use comm::collectives::DIRECT_MEMBERS;
use comm::{Counting, Transport};
use device::{Bf16, Element, F16, SumTree};
use mesh::even_split;
use proptest::prelude::*;
use std::sync::Arc;

over_every_wire!(
    all_reduce_of_any_length_has_the_bits_of_the_serial_sum,
    all_reduce_sums_in_rank_order,
    a_large_group_sums_in_rank_order,
    all_reduce_max_takes_the_largest_and_keeps_not_a_number,
    all_reduce_of_integers_wraps,
    reduce_scatter_of_integers_wraps_in_the_own_slice,
    reduce_scatter_leaves_the_sum_in_the_own_slice_and_the_rest_alone,
    all_gather_fills_the_slices_of_the_others,
    all_to_all_gives_every_member_its_slice_of_every_member,
    parts_of_slices_travel_alone,
    a_ring_shift_gives_every_member_the_buffer_of_the_previous_one,
    a_reduce_scatter_and_an_all_gather_are_an_all_reduce,
    bytes_of_any_length_are_gathered,
    nobody_leaves_a_barrier_before_all_have_come,
    slices_that_do_not_divide_are_refused_with_the_padding,
    sums_of_bf16_and_fp16_values_are_taken_in_single_precision_and_rounded_once,
);

/// Lengths around every border: none, fewer than ranks, odd, a copied message, a block, lent slices.
const LENS: [usize; 10] = [0, 1, 3, 7, 8, 1023, 1025, 4096, 4097, 40_003];

fn oracle(ranks: usize, len: usize) -> Vec<f32> {
    serial(ranks, len, |a, b| a + b)
}

fn all_reduce_sums_in_rank_order(wire: Wire) {
    for ranks in 1..=9 {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            LENS.map(|len| {
                let mut data = input(communicator.position(), len);
                communicator.all_reduce_sum(&mut data).unwrap();
                bits(&data)
            })
        });
        for result in results {
            for (len, got) in LENS.into_iter().zip(result) {
                assert!(got == bits(&oracle(ranks, len)), "{ranks} ranks, {len} elements");
            }
        }
    }
}

/// Short messages of more than 32 members go to the first one, which answers.
fn a_large_group_sums_in_rank_order(wire: Wire) {
    for ranks in [DIRECT_MEMBERS, DIRECT_MEMBERS + 1, 70] {
        let lens = [0, 1, 7, 1025, 4096, 4097];
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            lens.map(|len| {
                let mut data = input(communicator.position(), len);
                communicator.barrier().unwrap();
                communicator.all_reduce_sum(&mut data).unwrap();
                bits(&data)
            })
        });
        let expected = lens.map(|len| bits(&oracle(ranks, len)));
        assert!(results.iter().all(|got| *got == expected), "{ranks} ranks");
    }
}

fn all_reduce_max_takes_the_largest_and_keeps_not_a_number(wire: Wire) {
    for ranks in 1..=9 {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let mut data = input(communicator.position(), 5003);
            if communicator.position() == ranks / 2 {
                data[17] = f32::NAN;
            }
            communicator.all_reduce_max(&mut data).unwrap();
            data
        });
        let mut expected = serial(ranks, 5003, f32::max);
        expected[17] = f32::NAN;
        for got in results {
            assert_eq!(bits(&got), bits(&expected), "{ranks} ranks");
        }
    }
}

fn all_reduce_of_integers_wraps(wire: Wire) {
    for (ranks, len) in [(1, 5), (2, 3), (3, 2049), (5, 9001), (9, 20)] {
        let value = |rank: usize, i: usize| i64::MAX / 2 - (rank * 31 + i) as i64;
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let position = communicator.position();
            let mut data: Vec<i64> = (0..len).map(|i| value(position, i)).collect();
            communicator.all_reduce_integers_in_runs(&mut data, SumTree::RANK_ORDER).unwrap();
            data
        });
        let sum = |i| (0..ranks).fold(0i64, |sum, rank| sum.wrapping_add(value(rank, i)));
        let expected: Vec<i64> = (0..len).map(sum).collect();
        assert!(results.iter().all(|got| *got == expected), "{ranks} ranks, {len}");
    }
}

fn reduce_scatter_of_integers_wraps_in_the_own_slice(wire: Wire) {
    for (ranks, slice_len) in [(1, 5), (2, 3), (3, 2049), (5, 1801)] {
        let value = |rank: usize, i: usize| i64::MAX / 2 - (rank * 31 + i) as i64;
        let len = ranks * slice_len;
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let position = communicator.position();
            let mut data: Vec<i64> = (0..len).map(|i| value(position, i)).collect();
            communicator.reduce_scatter_integers_in_runs(&mut data, SumTree::RANK_ORDER).unwrap();
            data
        });
        let sum = |i| (0..ranks).fold(0i64, |sum, rank| sum.wrapping_add(value(rank, i)));
        for (position, got) in results.into_iter().enumerate() {
            let own = even_split(len, ranks, position);
            let expected = |i| if own.contains(&i) { sum(i) } else { value(position, i) };
            assert_eq!(got, (0..len).map(expected).collect::<Vec<_>>(), "{ranks} ranks, slices of {slice_len}");
        }
    }
}

fn reduce_scatter_leaves_the_sum_in_the_own_slice_and_the_rest_alone(wire: Wire) {
    for ranks in 1..=9 {
        for slice_len in [0, 1, 5, 1024, 4099] {
            let len = slice_len * ranks;
            let results = run(wire, ranks, |transport| {
                let communicator = communicator(&transport);
                let mut data = input(communicator.position(), len);
                communicator.reduce_scatter(&mut data).unwrap();
                data
            });
            for (position, got) in results.into_iter().enumerate() {
                let mut expected = input(position, len);
                let own = even_split(len, ranks, position);
                expected[own.clone()].copy_from_slice(&oracle(ranks, len)[own]);
                assert_eq!(bits(&got), bits(&expected), "{ranks} ranks, slices of {slice_len}");
            }
        }
    }
}

fn all_gather_fills_the_slices_of_the_others(wire: Wire) {
    for ranks in 1..=9 {
        for slice_len in [0, 1, 5, 1024, 4099, 4100] {
            let len = slice_len * ranks;
            let results = run(wire, ranks, |transport| {
                let communicator = communicator(&transport);
                let mut data = input(communicator.position(), len);
                communicator.all_gather(&mut data).unwrap();
                data
            });
            let slice = |position| input(position, len)[even_split(len, ranks, position)].to_vec();
            let expected: Vec<f32> = (0..ranks).flat_map(slice).collect();
            assert!(results.iter().all(|got| *got == expected), "{ranks} ranks, {slice_len}");
        }
    }
}

fn all_to_all_gives_every_member_its_slice_of_every_member(wire: Wire) {
    for ranks in 1..=9 {
        for slice_len in [0, 1, 5, 1024, 4099] {
            let len = slice_len * ranks;
            let results = run(wire, ranks, |transport| {
                let communicator = communicator(&transport);
                let (from, mut to) = (input(communicator.position(), len), vec![f32::NAN; len]);
                communicator.all_to_all(&from, &mut to).unwrap();
                assert_eq!(from, input(communicator.position(), len), "what is sent stays");
                to
            });
            for (position, got) in results.into_iter().enumerate() {
                let slice = |sender| input(sender, len)[even_split(len, ranks, position)].to_vec();
                let expected: Vec<f32> = (0..ranks).flat_map(slice).collect();
                assert_eq!(bits(&got), bits(&expected), "{ranks} ranks, slices of {slice_len}");
            }
        }
    }
}

/// Bytes that `from` gives `to`, of slices of `room`: all, none, and some.
fn part(room: usize, from: usize, to: usize) -> usize {
    match (from + 2 * to) % 4 {
        0 => 0,
        1 => room,
        other => room * other / 7,
    }
}

/// The parts in use arrive, the rest stays as it is, and no more bytes are sent than are in use.
fn parts_of_slices_travel_alone(wire: Wire) {
    for ranks in 1..=6 {
        for room in [0, 1, 24, 4096, 40_000] {
            let bytes =
                |rank: usize| -> Vec<u8> { (0..room * ranks).map(|index| (index * 31 + rank * 7) as u8).collect() };
            let results = run(wire, ranks, |transport| {
                let (counting, counts) = Counting::new(transport);
                let communicator = communicator(&(Arc::new(counting) as Arc<dyn Transport>));
                let position = communicator.position();
                let given: Vec<usize> = (0..ranks).map(|to| part(room, position, to)).collect();
                let gotten: Vec<usize> = (0..ranks).map(|from| part(room, from, position)).collect();
                let (from, mut to) = (bytes(position), vec![255; room * ranks]);
                communicator.exchange_parts((&from, &given), (&mut to, &gotten)).unwrap();
                (to, counts.total())
            });
            for (position, (got, sent)) in results.into_iter().enumerate() {
                let mut expected = vec![255; room * ranks];
                for from in 0..ranks {
                    let used = part(room, from, position);
                    expected[from * room..][..used].copy_from_slice(&bytes(from)[position * room..][..used]);
                }
                assert!(got == expected, "{ranks} ranks, slices of {room}");
                let to_others = (0..ranks).filter(|to| *to != position).map(|to| part(room, position, to) as u64);
                assert_eq!((sent.messages, sent.bytes), (ranks as u64 - 1, to_others.sum()), "{ranks} ranks, {room}");
            }
        }
    }
}

fn a_ring_shift_gives_every_member_the_buffer_of_the_previous_one(wire: Wire) {
    for ranks in 1..=9 {
        for len in LENS {
            let results = run(wire, ranks, |transport| {
                let communicator = communicator(&transport);
                let (mut from, mut to) = (input(communicator.position(), len), vec![f32::NAN; len]);
                // Twice: what was received is sent on.
                communicator.shift(&from, &mut to).unwrap();
                communicator.shift(&to, &mut from).unwrap();
                [to, from].map(|got| bits(&got))
            });
            for (position, got) in results.into_iter().enumerate() {
                let before = |steps: usize| bits(&input((position + steps * ranks - steps) % ranks, len));
                assert!(got == [before(1), before(2)], "{ranks} ranks, {len} elements");
            }
        }
    }
}

fn a_reduce_scatter_and_an_all_gather_are_an_all_reduce(wire: Wire) {
    for (ranks, len) in [(2, 10_000), (4, 64), (7, 70_007)] {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let mut data = input(communicator.position(), len);
            communicator.reduce_scatter(&mut data).unwrap();
            communicator.all_gather(&mut data).unwrap();
            bits(&data)
        });
        assert!(results.iter().all(|got| *got == bits(&oracle(ranks, len))));
    }
}

fn bytes_of_any_length_are_gathered(wire: Wire) {
    for ranks in [1, 2, 5] {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let mut hashes = vec![communicator.position() as u8; 3 * ranks];
            communicator.all_gather(&mut hashes).unwrap();
            hashes
        });
        let hashes: Vec<u8> = (0..ranks as u8).flat_map(|rank| [rank; 3]).collect();
        assert!(results.iter().all(|got| *got == hashes), "{ranks} ranks");
    }
}

fn nobody_leaves_a_barrier_before_all_have_come(wire: Wire) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let arrived = AtomicUsize::new(0);
    run(wire, 8, |transport| {
        let communicator = communicator(&transport);
        for round in 1..=50 {
            arrived.fetch_add(1, Ordering::SeqCst);
            communicator.barrier().unwrap();
            assert!(arrived.load(Ordering::SeqCst) >= 8 * round);
        }
    });
}

fn slices_that_do_not_divide_are_refused_with_the_padding(wire: Wire) {
    let results = run(wire, 3, |transport| {
        let communicator = communicator(&transport);
        communicator.reduce_scatter(&mut [0.0; 10]).unwrap_err().to_string()
    });
    assert_eq!(
        results[1],
        "rank 1: reduce-scatter over 3 ranks needs equal slices, and 10 elements do not divide; \
         pad the buffer to 12 elements"
    );
}

fn all_reduce_of_any_length_has_the_bits_of_the_serial_sum(wire: Wire) {
    let config = ProptestConfig { cases: 40, ..ProptestConfig::default() };
    proptest!(config, |(ranks in 1usize..10, lens in proptest::collection::vec(0usize..20_000, 1..4))| {    let results = run_within(wire, patient(), ranks, |transport| {
        let communicator = communicator(&transport);
        let mut reduce = |&len: &usize| {
            let mut data = input(communicator.position(), len);
            communicator.all_reduce_sum(&mut data).unwrap();
            bits(&data)
        };
        lens.iter().map(&mut reduce).collect::<Vec<_>>()
    });
    let expected: Vec<_> = lens.iter().map(|&len| bits(&oracle(ranks, len))).collect();
    for got in results {
        prop_assert!(got == expected);
    }
    });
}

/// A rank's input in a narrow type.
fn narrow_input<E: Element>(rank: usize, len: usize) -> Vec<E> {
    input(rank, len).into_iter().map(E::narrow).collect()
}

/// The sum in single precision, one rank after the other, rounded once at the end.
fn narrow_oracle<E: Element>(ranks: usize, len: usize) -> Vec<u8> {
    let mut sums: Vec<f32> = narrow_input::<E>(0, len).into_iter().map(Element::widen).collect();
    for rank in 1..ranks {
        sums.iter_mut().zip(narrow_input::<E>(rank, len)).for_each(|(sum, x)| *sum += x.widen());
    }
    let rounded: Vec<E> = sums.into_iter().map(E::narrow).collect();
    bytemuck::cast_slice(&rounded).to_vec()
}

fn narrow_sums_are_rounded_once<E: Element>(wire: Wire) {
    for ranks in 1..=5 {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator(&transport);
            let position = communicator.position();
            let reduced = LENS.map(|len| {
                let mut data = narrow_input::<E>(position, len);
                communicator.all_reduce_sum(&mut data).unwrap();
                bytemuck::cast_slice::<E, u8>(&data).to_vec()
            });
            // A sum in slices and a gather of them are an all-reduce.
            let mut data = narrow_input::<E>(position, ranks * 9001);
            communicator.reduce_scatter(&mut data).unwrap();
            communicator.all_gather(&mut data).unwrap();
            (reduced, bytemuck::cast_slice::<E, u8>(&data).to_vec())
        });
        for (reduced, gathered) in results {
            for (len, got) in LENS.into_iter().zip(reduced) {
                assert!(got == narrow_oracle::<E>(ranks, len), "{ranks} ranks, {len} elements of {:?}", E::DTYPE);
            }
            assert!(gathered == narrow_oracle::<E>(ranks, ranks * 9001), "{ranks} ranks, slices of {:?}", E::DTYPE);
        }
    }
}

fn sums_of_bf16_and_fp16_values_are_taken_in_single_precision_and_rounded_once(wire: Wire) {
    narrow_sums_are_rounded_once::<Bf16>(wire);
    narrow_sums_are_rounded_once::<F16>(wire);
}
