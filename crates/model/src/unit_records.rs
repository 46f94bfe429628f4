//! All functions of all units of a model, each recorded once.

use config::unit::UnitKind;
use device::Frame;
use program::{Footprint, Footprints, Purpose};

use crate::constants::Constants;
use crate::context::Batch;
use crate::head::Head;
use crate::recording::{Phase, RecordCase, RecordError, UnitRecord, record_unit};

/// What every function of every unit kind did on one microbatch and one tensor-parallel rank.
#[derive(Clone, Debug)]
pub struct UnitRecords<'a> {
    case: RecordCase<'a>,
    embedding: [UnitRecord; Phase::ALL.len()],
    layer: [UnitRecord; Phase::ALL.len()],
    head: [UnitRecord; Phase::ALL.len()],
}

impl<'a> UnitRecords<'a> {
    /// Runs the units of `case` on a recording device.
    ///
    /// # Errors
    /// As [`record_unit`].
    pub fn new(case: RecordCase<'a>) -> Result<UnitRecords<'a>, RecordError> {
        let all = |kind| -> Result<[UnitRecord; Phase::ALL.len()], RecordError> {
            let of = |phase| record_unit(&case, kind, phase);
            let [forward, recompute, backward_input, backward_weight] = Phase::ALL;
            Ok([of(forward)?, of(recompute)?, of(backward_input)?, of(backward_weight)?])
        };
        let (embedding, layer, head) = (all(UnitKind::Embedding)?, all(UnitKind::Layer)?, all(UnitKind::Head)?);
        Ok(UnitRecords { case, embedding, layer, head })
    }

    /// What was recorded.
    pub fn case(&self) -> &RecordCase<'a> {
        &self.case
    }

    /// What a function did; `None` for the table, which has none.
    pub fn of(&self, kind: UnitKind, phase: Phase) -> Option<&UnitRecord> {
        let all = match kind {
            UnitKind::Table => return None,
            UnitKind::Embedding => &self.embedding,
            UnitKind::Layer => &self.layer,
            UnitKind::Head => &self.head,
        };
        Some(&all[phase as usize])
    }

    /// Bytes of every unit kind.
    ///
    /// Saved bytes are those that the forward pass writes, whatever the purpose and whether or not they are kept behind it.
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
                Batch::lay_out(frame, shape);
            }),
            constant_bytes: measured(&|frame| {
                Constants::lay_out(frame, &Frame::measuring(), model);
            }),
            loss_sums_bytes: measured(&|frame| {
                Constants::lay_out(&Frame::measuring(), frame, model);
            }),
            embedding: footprint(&self.embedding, activation_bytes),
            layer: footprint(&self.layer, activation_bytes),
            head: footprint(&self.head, head_output_bytes),
        }
    }
}

/// Bytes of every unit kind for the microbatch of `case` on its tensor-parallel rank: [`UnitRecords::footprints`] of it alone.
///
/// # Errors
/// As [`record_unit`].
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
