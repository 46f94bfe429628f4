//! Multiply-adds and bytes, per rank and step.

use prove::outcome_of;

use crate::conservation::cases::{Case, cases};
use crate::conservation::counted::{CountingEngine, Extra, count};
use crate::conservation::recorded::record;

#[test]
fn recorded_work_is_counted_work() {
    for case in cases() {
        let setup = case.setup();
        let (counted, recorded) = (count(&case, &setup, Extra::Nothing), record(&case, &setup));
        for (rank, (counted, recorded)) in counted.iter().zip(&recorded).enumerate() {
            assert_eq!(counted.steps, recorded.steps, "{}, rank {rank}", case.name);
            assert_eq!(recorded.steps[0].multiply_adds, recorded.steps[1].multiply_adds, "{}: steps differ", case.name);
        }
        let sum: u64 = counted.iter().map(|rank| rank.steps[1].multiply_adds).sum();
        let sent: u64 = counted.iter().map(|rank| rank.steps[1].sent_bytes).sum();
        println!("{:45} {sum:>10} multiply-adds, {sent:>9} bytes sent in a step", case.name);
    }
}

/// The highest byte that an operation is recorded to touch is the last one that kernels change, and the arena ends on
/// its cache line.
#[test]
fn recorded_peak_is_the_arena() {
    for case in cases() {
        let setup = case.setup();
        let (counted, recorded) = (count(&case, &setup, Extra::Nothing), record(&case, &setup));
        for (rank, (counted, recorded)) in counted.iter().zip(&recorded).enumerate() {
            let stage = setup.mesh.coord(mesh::Rank(rank)).along(mesh::Axis::Pp);
            assert_eq!(counted.peak_bytes, recorded.peak_bytes, "{}, rank {rank}", case.name);
            let plan = setup.plan(stage);
            let arena_bytes = plan.host_bytes() + plan.arena_bytes();
            assert_eq!(
                recorded.peak_bytes.next_multiple_of(device::ALIGN_BYTES),
                arena_bytes,
                "{}, rank {rank}",
                case.name
            );
        }
    }
}

/// In a poisoned arena every loss is what it is in a zeroed one: nothing but state is read before it is written.
#[test]
fn nothing_is_read_before_it_is_written() {
    for case in cases() {
        let setup = case.setup();
        let clean = outcome_of(&setup, &*testkit::layout::engine(&setup, 1), &case.tokens()).unwrap();
        let poisoned = outcome_of(&setup, &CountingEngine::new(&setup, Extra::Nothing), &case.tokens()).unwrap();
        assert!(clean == poisoned, "{}: {:?} against {:?}", case.name, clean.losses, poisoned.losses);
    }
}

/// A kernel that does its work twice, a layer with one product more, and a collective too many are each seen, on the
/// rank that has them.
#[test]
fn more_work_than_recorded_is_seen() {
    for (extra, changes) in [
        (Extra::Operation("mat_mul"), [true, false]),
        (Extra::Operation("attention_backward"), [true, false]),
        (Extra::AllReduce, [false, true]),
    ] {
        let case: Case = cases().into_iter().find(|case| case.name.starts_with("tp 3")).unwrap();
        let setup = case.setup();
        let (counted, recorded) = (count(&case, &setup, extra), record(&case, &setup));
        for (counted, recorded) in counted.iter().zip(&recorded) {
            let (first, second) = (counted.steps[0], counted.steps[1]);
            let expected = recorded.steps[0];
            let differs = [first.multiply_adds > expected.multiply_adds, first.sent_bytes > expected.sent_bytes];
            assert_eq!(differs, changes, "{extra:?}: {first:?} against {expected:?}");
            assert_eq!(second, recorded.steps[1], "{extra:?} strikes in the first step only");
        }
    }
}
