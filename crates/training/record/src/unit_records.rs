//! All functions of all units of a model, each recorded once.

use config::{PerClass, UnitClass};
use device::Frame;
use model::{Batch, Constants, Head};
use program::PassKind;
use program::{Footprint, Footprints, Purpose};

use crate::recording::{RecordCase, RecordError, UnitRecord, record_unit};

/// The records of every function of every unit, for one microbatch and one tensor-parallel rank.
#[derive(Clone, Debug)]
pub struct UnitRecords<'a> {
    case: RecordCase<'a>,
    units: PerClass<[UnitRecord; PassKind::ALL.len()]>,
}

impl<'a> UnitRecords<'a> {
    /// Runs the units of `case` on a recording device.
    ///
    /// # Errors
    /// The errors of [`record_unit`].
    pub fn new(case: RecordCase<'a>) -> Result<UnitRecords<'a>, RecordError> {
        let classes = case.model.classes();
        let units = PerClass::try_new(&classes, |class| {
            let of = |phase| record_unit(&case, classes.first(class), phase);
            let [forward, recompute, backward_input, backward_weight] = PassKind::ALL;
            Ok::<_, RecordError>([of(forward)?, of(recompute)?, of(backward_input)?, of(backward_weight)?])
        })?;
        Ok(UnitRecords { case, units })
    }

    /// The recorded case.
    pub fn case(&self) -> &RecordCase<'a> {
        &self.case
    }

    /// The record of each function; empty for the table, which has none.
    pub fn units(&self) -> &PerClass<[UnitRecord; PassKind::ALL.len()]> {
        &self.units
    }

    /// Bytes of every unit.
    ///
    /// Saved bytes are those that the forward pass writes, whatever the purpose and whether or not they are kept after
    /// it.
    pub fn footprints(&self) -> Footprints {
        let RecordCase { model, tp, shape, sequence_parallel, purpose, stored, .. } = self.case;
        let measured = |lay_out: &dyn Fn(&Frame)| {
            let frame = Frame::measuring();
            lay_out(&frame);
            frame.peak_bytes()
        };
        let activation_bytes = measured(&|frame| {
            frame.tensor(shape.tokens() / sequence_parallel.runs(tp.size), model.hidden, stored);
        });
        let logits_bytes = measured(&|frame| {
            let (rows, cols) = Head::logits_shape(model, tp.size, shape);
            frame.floats(rows, cols);
        });
        let head_output_bytes = match purpose {
            Purpose::Train | Purpose::Evaluate => 0,
            Purpose::Generate => logits_bytes,
        };
        Footprints {
            batch_bytes: measured(&|frame| {
                Batch::lay_out(frame, model, shape);
            }),
            constant_bytes: measured(&|frame| {
                Constants::lay_out(frame, &Frame::measuring(), model);
            }),
            loss_sums_bytes: measured(&|frame| {
                Constants::lay_out(&Frame::measuring(), frame, model);
            }),
            units: self.units.map(|class, phases| {
                let output_bytes = match class {
                    UnitClass::Table | UnitClass::Adapters(_) | UnitClass::Experts(_) => 0,
                    UnitClass::Embedding | UnitClass::Layer(_) => activation_bytes,
                    UnitClass::Head => head_output_bytes,
                };
                footprint(phases, output_bytes)
            }),
        }
    }
}

/// Bytes of every unit for the microbatch of `case` on its tensor-parallel rank: [`UnitRecords::footprints`] of it
/// alone.
///
/// # Errors
/// The errors of [`record_unit`].
pub fn footprints(case: &RecordCase) -> Result<Footprints, RecordError> {
    Ok(UnitRecords::new(*case)?.footprints())
}

fn footprint(phases: &[UnitRecord], output_bytes: usize) -> Footprint {
    let mut footprint = Footprint { output_bytes, ..Footprint::default() };
    for used in phases {
        // Each phase lays out the same saved set, or none of it.
        footprint.saved_until_input_bytes = footprint.saved_until_input_bytes.max(used.saved_until_input_bytes);
        footprint.saved_until_weight_bytes = footprint.saved_until_weight_bytes.max(used.saved_until_weight_bytes);
        footprint.core_until_input_bytes = footprint.core_until_input_bytes.max(used.core_until_input_bytes);
        footprint.core_until_weight_bytes = footprint.core_until_weight_bytes.max(used.core_until_weight_bytes);
        footprint.saved_input_bytes = footprint.saved_input_bytes.max(used.saved_input_bytes);
        footprint.pending_bytes = footprint.pending_bytes.max(used.pending_bytes);
        footprint.scratch_bytes = footprint.scratch_bytes.max(used.scratch_bytes);
    }
    footprint
}
