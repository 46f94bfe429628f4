//! The deadlines of ranks change when the first step has ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comm::{Timeouts, Transport};
use config::{ModelSpec, TrainSpec};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, Setup, StepReport, StopRequest, ThreadEngine, run};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };
const LATER: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_secs(600);

/// Keeps an end of a rank, and the deadlines after each step.
#[derive(Default)]
struct Deadlines {
    ends: Mutex<Vec<Arc<dyn Transport>>>,
    after_steps: Mutex<Vec<Duration>>,
}

impl Deadlines {
    fn now(&self) -> Duration {
        self.ends.lock().expect("no panic")[0].timeouts().wait
    }
}

impl Observer for Deadlines {
    fn step(&self, _: &StepReport) -> StopRequest {
        self.after_steps.lock().expect("no panic").push(self.now());
        StopRequest::None
    }
}

#[test]
fn the_second_step_begins_with_the_deadlines_of_later_steps() {
    let deadlines = |steps| {
        let model = ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) };
        let train = TrainSpec { steps, global_batch: 4, ..proof_training() };
        let setup = Setup::new(model, plain_layout(2, 1, 2, 1), train).expect("legal");
        let seen = Deadlines::default();
        let timeouts = Timeouts::new(LATER).with_first_step(FIRST);
        let engine = ThreadEngine::new(setup.groups(), timeouts).wrapped(|end| {
            seen.ends.lock().expect("no panic").push(Arc::clone(&end));
            end
        });
        assert_eq!(seen.now(), FIRST);
        run(&setup, &engine, Ports::new(&TEXT, &seen)).expect("trained");
        let last = seen.now();
        (seen.after_steps.into_inner().expect("no panic"), last)
    };
    assert_eq!(deadlines(1), (vec![FIRST], FIRST));
    let (after_steps, last) = deadlines(3);
    assert_eq!((after_steps[0], last), (FIRST, LATER), "a rank reports a step before the next one begins");
}
