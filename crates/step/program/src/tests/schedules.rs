//! Generators against what the papers say of them, and text.

use crate::{
    Cell, CellCosts, CellKind, CellTimes, ContributionOrder, Schedule, StageCosts, Timeline, forward_only, gpipe,
    interleaved, one_forward_one_backward, zero_bubble_auto, zero_bubble_h1, zero_bubble_h2, zero_bubble_v,
};
use config::{GivenSchedule, ScheduleKind, ScheduleSpec};

use crate::tests::setup::KINDS;

const TIMES: CellTimes = CellTimes::EVEN;

/// Most passes whose forward is done and whose backward is not, on one rank.
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

/// Waits of each rank between its first cell and its last.
fn waits(schedule: &Schedule) -> Vec<usize> {
    let waits = |cells: &Vec<(Cell, usize, usize)>| {
        let span = cells.last().unwrap().2 - cells[0].1;
        span - cells.iter().map(|(_, start, end)| end - start).sum::<usize>()
    };
    Timeline::new(schedule, TIMES).ranks.iter().map(waits).collect()
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
fn interleaving_divides_the_bubble_and_holds_more() {
    for pp in 1..7 {
        for stages_per_rank in 1..5 {
            for groups in 2..4 {
                let schedule = interleaved(pp, groups * pp, stages_per_rank);
                // Bubble (p - 1) (F + B) / v of a rank, where F and B of a stage are a v-th of a rank's.
                let timeline = Timeline::new(&schedule, TIMES);
                let ideal = groups * pp * stages_per_rank * 3;
                assert_eq!(timeline.makespan(), ideal + (pp - 1) * 3, "{schedule}{timeline}");
                // The first rank holds p (1 + (p - 1) / (p v)) microbatches, v stages each.
                let most = pp * stages_per_rank + pp - 1;
                assert_eq!(in_flight(&schedule, 0), most.min(groups * pp * stages_per_rank));
            }
        }
    }
}

#[test]
fn splitting_the_backward_pass_leaves_a_third_of_the_bubble_or_none() {
    for pp in 1..9 {
        for m in 2 * pp..2 * pp + 6 {
            // (p - 1) (F + I - W), in p microbatches; (p - 1) (F + I - 2 W), in 2 p - 1.
            let (h1, h2) = (zero_bubble_h1(pp, m), zero_bubble_h2(pp, m));
            assert_eq!(waits(&h1).into_iter().max(), Some(pp - 1), "{h1}");
            assert_eq!(waits(&h2), vec![0; pp], "{h2}");
            for rank in 0..pp {
                assert_eq!(in_flight(&h1, rank), pp);
                assert_eq!(in_flight(&h2, rank), 2 * pp - 1);
            }
            // As H2 without a wait, in as many activations as H1: 2 p passes of half a rank's layers.
            let v = zero_bubble_v(pp, m, &CellCosts::EVEN);
            assert_eq!(waits(&v), vec![0; pp], "{v}");
            assert!((0..pp).all(|rank| in_flight(&v, rank) <= 2 * pp), "{v}");
        }
    }
}

#[test]
fn the_automatic_schedule_keeps_to_its_memory_and_is_no_slower_than_the_handmade_ones() {
    let slowest = |schedule: &Schedule| waits(schedule).into_iter().max();
    for pp in 1..9 {
        for m in [1, pp, 2 * pp, 4 * pp] {
            for (memory_percent, handmade) in [(100, zero_bubble_h1(pp, m)), (200, zero_bubble_h2(pp, m))] {
                let auto = zero_bubble_auto(pp, m, memory_percent, &StageCosts::EVEN);
                assert!(slowest(&auto) <= slowest(&handmade), "{memory_percent} %\n{auto}\n{handmade}");
                assert!((0..pp).all(|rank| in_flight(&auto, rank) <= memory_percent * pp / 100), "{auto}");
            }
            let least = zero_bubble_auto(pp, m, 100usize.div_ceil(pp), &StageCosts::EVEN);
            assert!((0..pp).all(|rank| in_flight(&least, rank) == 1), "{least}");
        }
    }
}

#[test]
fn every_kind_is_among_those_of_these_tests() {
    let tested = KINDS.map(ScheduleKind::name);
    let missing = ScheduleKind::ALL.map(ScheduleKind::name).into_iter().filter(|name| !tested.contains(name));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "add them to KINDS");
}

#[test]
fn kinds_say_how_much_they_hold() {
    for kind in KINDS {
        for pp in 1..6 {
            for m in [1, 2, 7, 20] {
                let m = kind.microbatch_group(pp) * m;
                let schedule = Schedule::generate(kind, pp, m, &StageCosts::EVEN);
                let held = (0..pp).map(|rank| in_flight(&schedule, rank)).max().unwrap();
                assert!(held <= kind.held_passes(pp, m), "{kind:?}, {pp} ranks, {m} microbatches: {held}\n{schedule}");
            }
        }
    }
}

#[test]
fn every_schedule_is_complete_in_order_and_reads_back() {
    for kind in KINDS {
        for pp in 1..6 {
            for m in [1, 2, 5] {
                let m = kind.microbatch_group(pp) * m;
                let schedule = Schedule::generate(kind, pp, m, &StageCosts::EVEN);
                assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
                assert_eq!(schedule.contribution_order(), ContributionOrder::Ascending);
                // A generated schedule is legal as a file too: complete, without a circle, and in one order per
                // channel.
                assert_eq!(given(&schedule.to_string(), pp, m).unwrap(), schedule);
                let placed = forward_only(&schedule.stage_map, pp, m);
                let cells = Timeline::new(&placed, TIMES).ranks.iter().map(Vec::len).sum::<usize>();
                assert_eq!(cells, m * schedule.num_stages(), "{placed}");
            }
        }
    }
}

#[test]
fn text_is_read_as_it_is_written() {
    let v_shaped = "0F0 3F0 3I0 3W0 0B0 # a comment\n\n1F0 2F0 2B0 1B0\n".parse::<Schedule>().unwrap();
    assert_eq!(v_shaped.stage_map, [0, 1, 1, 0]);
}

fn given(text: &str, pp: usize, num_microbatches: usize) -> Result<Schedule, String> {
    let given = GivenSchedule { path: "my.schedule".into(), text: text.into() };
    Schedule::new(&ScheduleSpec::Given(given), pp, num_microbatches, &StageCosts::EVEN)
        .map_err(|error| error.to_string())
}

#[test]
fn errors_say_where_and_what() {
    let cell = "is not a cell; cells are written as 2F0: stage 2, forward (or B, I, W), microbatch 0";
    for (text, pp, m, expected) in [
        ("0F0\n0F1 0X1", 2, 2, format!("line 2: `0X1` {cell}")),
        ("0F0 1é", 1, 1, format!("line 1: `1é` {cell}")),
        ("0F0\n\n0B0", 2, 1, "line 3: `0B0` is of a stage that has cells on line 1 too; a stage lives on one rank".into()),
        ("0F0 2F0", 1, 1, "stage 1 has no cells, but stage 2 has; stages are numbered without gaps".into()),
        (
            "0F0 0B0",
            2,
            1,
            "lines with cells: 1, parallelism.pp = 2; write one line per pipeline rank".into(),
        ),
        ("0F0 0B0\n1F0 1B2", 2, 2, "line 2: `1B2` is of microbatch 2, a step has 2: 0 to 1".into()),
        (
            "# two\n0F0 0I0 0W0 0B0",
            1,
            1,
            "line 2: `0B0` does again what `0I0` has done; leave one of them out".into(),
        ),
        (
            "0F0 0I0",
            1,
            1,
            "line 1: `0W0` is missing; every stage runs F, and B or both I and W, of every microbatch".into(),
        ),
        (
            "0F0 0B0\n1B0 1F0",
            2,
            1,
            "line 1: `0B0` never starts, for it waits for a cell that comes later on its line or never starts either; \
             move it after that cell"
                .into(),
        ),
        (
            "0F0 0F1 0B0 0B1\n1F1 1B1 1F0 1B0",
            2,
            2,
            "line 2: `1F1` takes from line 1, where `0F0` comes first; a rank receives in the order in which the other sends"
                .into(),
        ),
    ] {
        assert_eq!(given(text, pp, m).unwrap_err(), format!("my.schedule: {expected}"));
    }
}

#[test]
fn an_interleaved_schedule_needs_whole_groups() {
    let interleaved = ScheduleKind::Interleaved { stages_per_rank: 2 }.into();
    let error = Schedule::new(&interleaved, 4, 6, &StageCosts::EVEN).unwrap_err().to_string();
    assert_eq!(error, "6 microbatches are not whole groups of 4, in which the schedule passes them; use 8");
}

#[test]
fn a_file_may_leave_the_order() {
    let backwards = given("0F0 0F1 0B1 0B0", 1, 2).unwrap();
    assert_eq!(backwards.contribution_order(), ContributionOrder::Any);
}
