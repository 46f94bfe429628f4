//! A whole run, one of whose ranks or links is slow.

use std::sync::Mutex;
use std::time::Duration;

use config::{ModelSpec, TrainSpec};
use device::Op;
use mesh::{Coord, Rank};
use program::PeerGroup;
use testkit::intercepted::{Call, intercept_calls, intercept_ops};
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{
    Engine, Observer, Ports, RankEngine, Setup, StepReport, StopRequest, Straggler, StragglerWatch, Suspect, WorkTimes,
    run,
};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

/// Steps within which a slow rank must be named.
const STEPS: u32 = 20;

/// Ranks of a test take turns on few cores: a healthy one may look slow by as much.
const TURNS: f64 = 4.0;

/// Much longer than the work of a rank in a step, which is a millisecond or two.
const DELAY: Duration = Duration::from_millis(40);

fn setup() -> Setup {
    let model = ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) };
    let train = TrainSpec { steps: STEPS, global_batch: 4, ..proof_training() };
    Setup::new(model, plain_layout(2, 1, 2, 1), train).expect("legal")
}

struct Watching {
    watch: Mutex<StragglerWatch>,
    found: Mutex<Vec<(u32, Straggler)>>,
    taken: Mutex<Vec<WorkTimes>>,
}

impl Observer for Watching {
    fn rank_step(&self, times: WorkTimes) {
        self.taken.lock().expect("no panic").push(times.clone());
        self.watch.lock().expect("no panic").take(times);
    }

    fn step(&self, report: &StepReport) -> StopRequest {
        let slow = self.watch.lock().expect("no panic").slow(report.step, report.wall.as_secs_f64());
        self.found.lock().expect("no panic").extend(slow.into_iter().map(|slow| (report.step, slow)));
        StopRequest::None
    }
}

fn watched(setup: &Setup, engine: &dyn Engine, turns: f64) -> (Vec<(u32, Straggler)>, Vec<WorkTimes>) {
    let watch = Mutex::new(StragglerWatch::new(setup, turns));
    let watching = Watching { watch, found: Mutex::default(), taken: Mutex::default() };
    run(setup, engine, Ports::new(&TEXT, &watching)).expect("trained");
    (watching.found.into_inner().expect("no panic"), watching.taken.into_inner().expect("no panic"))
}

#[test]
fn a_rank_that_is_slow_in_every_step_is_named() {
    let setup = setup();
    let wrap = |coord: Coord, engine: RankEngine| {
        if setup.mesh.rank(coord) != Rank(3) {
            return engine;
        }
        intercept_ops(engine, |device, stream, op| {
            if let Op::Attention { .. } = op {
                std::thread::sleep(DELAY);
            }
            device.submit(stream, op)
        })
    };
    let (found, _) = watched(&setup, &WrappedEngine::new(&setup, &wrap), TURNS);
    let [(step, straggler)] = found.as_slice() else { panic!("one rank is slow: {found:?}") };
    assert_eq!(straggler.suspect, Suspect::Rank(Rank(3)));
    assert!(*step <= STEPS, "{step}");
    // Two microbatches through one layer: a sleep is never shorter than asked for.
    assert!(straggler.seconds >= 2.0 * DELAY.as_secs_f64(), "{straggler}");
    let text = straggler.to_string();
    assert!(text.contains("rank 3 is slow: it works ") && text.contains("most of it in forward passes"), "{text}");
}

/// Links are compared where no rank is slow. Each rank of this test sleeps at the end of a step, so that others on the
/// same cores do not make its work look longer than that of its peers.
#[test]
fn a_link_that_is_slow_in_every_step_is_named() {
    let setup = setup();
    let wrap = |coord: Coord, engine: RankEngine| {
        let engine = intercept_ops(engine, |device, stream, op| {
            if let Op::ClipCoefficient { .. } = op {
                std::thread::sleep(5 * DELAY);
            }
            device.submit(stream, op)
        });
        if setup.mesh.rank(coord) != Rank(3) {
            return engine;
        }
        intercept_calls(engine, PeerGroup::PIPELINE, |_, group, stream, call| {
            if let Call::Receive { .. } = call {
                std::thread::sleep(2 * DELAY);
            }
            group.call(stream, call)
        })
    };
    let (found, _) = watched(&setup, &WrappedEngine::new(&setup, &wrap), 1.0);
    let [(step, straggler)] = found.as_slice() else { panic!("one link is slow: {found:?}") };
    assert_eq!(straggler.suspect, Suspect::Link { from: Rank(1), to: Rank(3) });
    assert!(*step <= STEPS, "{step}");
    // Two microbatches, of which the first may hide a part of the delay.
    assert!(straggler.seconds >= 2.0 * DELAY.as_secs_f64(), "{straggler}");
    assert!(
        straggler.to_string().contains("the link from rank 1 to rank 3 is slow: rank 3 waits for it "),
        "{straggler}"
    );
}

#[test]
fn times_name_every_rank_step_group_and_sender() {
    let setup = setup();
    let (_, taken) = watched(&setup, &*engine(&setup, 1), TURNS);
    assert_eq!(taken.len(), 4 * STEPS as usize);
    for times in &taken {
        // Two replicas reduce gradients, and the two stages send to each other.
        let shards = setup.groups().index(PeerGroup::SHARDS).expect("a group");
        assert!(times.calls[&shards].count > 0 && !times.calls[&shards].first_ns.is_empty(), "{times:?}");
        let sender = 1 - times.rank.0 / 2;
        assert_eq!(times.received_ns.keys().copied().collect::<Vec<_>>(), [sender], "{times:?}");
        assert!(times.own_ns.iter().all(|ns| *ns > 0), "{times:?}");
    }
}
