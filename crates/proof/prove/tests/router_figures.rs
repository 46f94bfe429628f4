//! Figures of routers that prefer no expert, which follow from their definitions: every score is 1/8, and of equal
//! experts each token chooses the first two.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Mutex;

use config::Balance;
use testkit::initial_weights::initial_weights;
use testkit::layout::engine;
use testkit::models::{plain_layout, proof_text};
use train::{Observer, Ports, RouterFigures, Start, StepReport, StopRequest, run};

use crate::experts::rig;

#[derive(Default)]
struct First(Mutex<Option<RouterFigures>>);

impl Observer for First {
    fn step(&self, report: &StepReport) -> StopRequest {
        let mut first = self.0.lock().unwrap();
        *first = first.or(report.routers);
        StopRequest::None
    }
}

/// Losses are sums over layers, of which two of four have experts; the entropy and the loads are of one layer.
#[test]
fn figures_of_routers_without_preference_follow_from_their_definitions() {
    let [loss, z_loss, capacity] = [0.25f32, 0.5, 1.0];
    let balance = Balance { loss: Some(loss), z_loss: Some(z_loss), capacity: Some(capacity), ..Balance::NONE };
    let model = rig::model(|experts| {
        experts.layer_interval = 2;
        experts.balance = balance;
    });
    for parallelism in [plain_layout(1, 1, 1, 2), plain_layout(2, 1, 2, 2), plain_layout(1, 2, 1, 2)] {
        let layout = rig::layout(&model, parallelism.clone(), rig::training());
        let zero = |name: &str| name.ends_with("router.weight");
        let weights = initial_weights(&layout, |param, values| {
            if zero(&param.name) {
                values.fill(0.0);
            }
        });
        let (setup, weights, first) = (layout.setup().unwrap(), weights.unwrap(), First::default());
        let text = proof_text();
        let ports = Ports { start: Start::with(Some(&weights)), ..Ports::new(&text, &first) };
        run(&setup, &*engine(&setup, 1), ports).unwrap();
        let figures = first.0.into_inner().unwrap().expect("figures of the first step");

        // Of the tokens of a sequence, each of two experts keeps a quarter: as many as balanced routing gives.
        let expected = [2.0 * f64::from(loss), 2.0 * f64::from(z_loss) * 8f64.ln().powi(2), 8f64.ln(), 0.75, 4.0, 0.0];
        let found = [
            figures.balance_loss.unwrap(),
            figures.z_loss.unwrap(),
            figures.entropy,
            figures.dropped.unwrap(),
            figures.largest_load,
            figures.smallest_load,
        ];
        // Values of tokens are rounded to single precision, after at most eight roundings of the sum of their scores.
        for (expected, found) in expected.into_iter().zip(found) {
            let bound = 16.0 * f64::from(f32::EPSILON) * expected;
            assert!((expected - found).abs() <= bound, "{parallelism:?}: {found} in place of {expected}: {figures:?}");
        }
        assert_eq!(figures.idle_experts, 2 * 6);
    }
}
