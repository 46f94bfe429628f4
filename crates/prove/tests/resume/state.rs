//! What is loaded is what was saved: to the bit, whatever the precision.

use std::sync::Mutex;

use checkpoint::{Checkpoint, StatePart};
use config::unit::Tied;
use config::{Format, Parallelism, ZeroStage};
use device::{DeviceError, element};
use prove::Watch;
use prove::models::{plain_layout, proof_text};
use prove::resumed::{Stretch, newest, outcome_of_legs, outcome_of_legs_watched};
use train::storage::pieces::{Copies, pieces};
use train::worker::Worker;

use crate::rig::{Folder, layout};

/// Compares, before the first update, what ranks hold with what a checkpoint holds.
struct Compare {
    checkpoint: Checkpoint,
    /// Elements of weights and moments that were compared.
    compared: Mutex<[usize; 3]>,
}

impl Watch for Compare {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.at > 0 || worker.step != self.checkpoint.state().steps {
            return Ok(());
        }
        for state in worker.units.values() {
            let moments = state.held_moments().expect("a run that trains");
            let held = [state.weights().clone()].into_iter().chain(moments).zip(StatePart::ALL);
            for (part, (held, kind)) in held.enumerate() {
                for piece in pieces(&state.layout, held.elements.clone(), worker.tensor, Copies::Every) {
                    let mut saved = vec![0.0; piece.region.len()];
                    self.checkpoint.get(&kind.tensor(&piece.param.name), &piece.region, &mut saved).unwrap();
                    let found = element::read(&*worker.device, held.part(piece.elements))?;
                    let is_same = found.iter().zip(&saved).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(is_same, "{kind:?} of {}", piece.param.name);
                    self.compared.lock().unwrap()[part] += saved.len();
                }
            }
        }
        Ok(())
    }
}

/// R15 for precisions, and N32: the state arrives as it left.
#[test]
fn master_weights_and_moments_are_those_that_were_saved() {
    let of = |format, dp, pp, zero| layout(Tied::Yes, format, Parallelism { zero, ..plain_layout(dp, 1, pp, 1) });
    let pairs = [
        (of(Format::Fp32, 2, 1, ZeroStage::Off), of(Format::Bf16, 1, 2, ZeroStage::Off)),
        (of(Format::Bf16, 2, 2, ZeroStage::One), of(Format::Fp32, 2, 1, ZeroStage::Off)),
        (of(Format::Bf16, 1, 1, ZeroStage::Off), of(Format::Fp16, 3, 1, ZeroStage::One)),
    ];
    for (before, after) in pairs {
        let folder = Folder::new();
        let half = |layout, until| [Stretch { layout, until }];
        outcome_of_legs(&half(before, 2), &proof_text(), &folder.0).unwrap();
        let compare = Compare { checkpoint: newest(&folder.0).unwrap(), compared: Mutex::default() };
        let last = after.train.steps;
        outcome_of_legs_watched(&half(after.clone(), last), &proof_text(), &folder.0, &compare).unwrap();
        let parameters = config::unique_parameters(&after.model) as usize;
        let compared = *compare.compared.lock().unwrap();
        assert!(compared.iter().all(|count| *count >= parameters), "{compared:?} of {parameters}");
    }
}
