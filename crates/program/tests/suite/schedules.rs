//! Generators against what the papers say of them, and text.

use program::schedule::{CellTimes, Timeline, gpipe, one_forward_one_backward};
use program::{CellKind, Schedule};

const TIMES: CellTimes = CellTimes { forward: 1, backward_input: 1, backward_weight: 1 };

/// Most microbatches whose forward is done and whose backward is not, on one rank.
fn in_flight(schedule: &Schedule, rank: usize) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for cell in &schedule.ranks[rank] {
        match cell.kind {
            CellKind::F => now += 1,
            CellKind::B | CellKind::W => now -= 1,
            CellKind::I => {}
        }
        most = most.max(now);
    }
    most
}

#[test]
fn bubbles_and_activations_in_flight_are_those_of_the_papers() {
    for pp in 1..7 {
        for m in 1..12 {
            // Bubble of GPipe and 1F1B: (p - 1) (F + B), B = 2 F; in flight: m, and min(m, p - i).
            let (ideal, bubble) = (m * 3, (pp - 1) * 3);
            for schedule in [gpipe(pp, m), one_forward_one_backward(pp, m)] {
                let timeline = Timeline::new(&schedule, TIMES);
                assert_eq!(timeline.makespan(), ideal + bubble, "p {pp} m {m}\n{schedule}{timeline}");
                assert!((0..pp).all(|rank| timeline.idle(rank) == bubble));
            }
            for rank in 0..pp {
                assert_eq!(in_flight(&gpipe(pp, m), rank), m);
                assert_eq!(in_flight(&one_forward_one_backward(pp, m), rank), m.min(pp - rank));
            }
        }
    }
}

#[test]
fn text_is_read_as_it_is_written() {
    for schedule in [gpipe(3, 4), one_forward_one_backward(4, 7)] {
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
    }
    let v_shaped = "0F0 3F0 3I0 3W0 0B0 # a comment\n\n1F0 2F0 2B0 1B0\n".parse::<Schedule>().unwrap();
    assert_eq!(v_shaped.placement, [0, 1, 1, 0]);
}

#[test]
fn errors_say_where_and_what() {
    let message = |text: &str| text.parse::<Schedule>().unwrap_err().to_string();
    assert_eq!(
        message("0F0\n0F1 0X1"),
        "line 2: `0X1` is no cell; cells are written as 2F0: stage 2, forward (or B, I, W), microbatch 0"
    );
    assert_eq!(
        message("0F0 1é"),
        "line 1: `1é` is no cell; cells are written as 2F0: stage 2, forward (or B, I, W), microbatch 0"
    );
    assert_eq!(message("0F0\n0B0"), "stage 0 has cells on pipeline ranks 0 and 1; a stage lives on one rank");
    assert_eq!(message("0F0 2F0"), "stage 1 has no cells, but stage 2 has; stages are numbered without gaps");
}
