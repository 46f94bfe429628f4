//! Tables that no step changes, and the sums of a step: the two sections of memory that every rank has once.

use config::{ModelSpec, Position};
use device::{Device, DeviceError, Dtype, Frame, Op, SUM_WORDS, Stream, Tensor, step_sum_words};

use crate::router_constants::RouterConstants;

/// Tensors that every rank holds once, in addition to parameters and activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Tables of a rotary model.
    pub rotary: Option<RotaryTables>,
    /// The tables of its local layers, where they have their own.
    pub local_rotary: Option<RotaryTables>,
    /// `[rank, rank]`: the scale of adapters times the identity, where there are any and it is not 1.
    pub adapter_scale: Option<Tensor>,
    /// The next sums, those of routers and the counts of choices, in a row: I64 `[1, step_sum_words]`.
    pub all_loss_sums: Tensor,
    /// Sum of the losses and number of valid labels of a step: I64 `[1, SUM_WORDS]`.
    pub loss_sums: Tensor,
    /// The same of the z-losses, where the model has one.
    pub z_loss_sums: Option<Tensor>,
    /// Tensors of routers, where the model has experts.
    pub routers: Option<RouterConstants>,
    /// Sum of squared gradients of a step: I64 `[1, SUM_WORDS]`.
    pub norm_sums: Tensor,
    /// Result of [`Op::ClipCoefficient`] `[1, 4]`.
    pub coefficient: Tensor,
}

/// Cosines and sines `[context, rotary_dims / 2]` of each position's angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryTables {
    /// Cosines.
    pub cos: Tensor,
    /// Sines.
    pub sin: Tensor,
}

impl Constants {
    /// Lays out the tables of `model` at the start of one frame and the step's sums at the start of another.
    pub fn lay_out(tables: &Frame, sums: &Frame, model: &ModelSpec) -> Constants {
        let rotary = || match model.position {
            Position::Learned { .. } | Position::Alibi => None,
            Position::Rotary { rotary_dims, .. } => {
                let table = || tables.floats(model.context, rotary_dims / 2);
                Some(RotaryTables { cos: table(), sin: table() })
            }
        };
        let all_loss_sums = sums.tensor(1, step_sum_words(model), Dtype::I64);
        let of_tokens = 1 + usize::from(model.z_loss.is_some());
        let scaled = model.lora.as_ref().filter(|lora| lora.scale() != 1.0);
        Constants {
            rotary: rotary(),
            adapter_scale: scaled.map(|lora| tables.floats(lora.rank, lora.rank)),
            local_rotary: model.local_rotary().and_then(|_| rotary()),
            all_loss_sums,
            loss_sums: all_loss_sums.elements(0..SUM_WORDS),
            z_loss_sums: model.z_loss.map(|_| all_loss_sums.elements(SUM_WORDS..2 * SUM_WORDS)),
            routers: RouterConstants::lay_out(tables, model, (all_loss_sums, of_tokens)),
            norm_sums: sums.tensor(1, SUM_WORDS, Dtype::I64),
            coefficient: sums.floats(1, 4),
        }
    }

    /// Fills the tables, those of routers with zeros. The step's sums are left to whoever starts a step.
    ///
    /// # Errors
    /// The device's.
    pub fn initialise(&self, device: &dyn Device, stream: Stream, model: &ModelSpec) -> Result<(), DeviceError> {
        if let (Some(scale), Some(lora)) = (self.adapter_scale, &model.lora) {
            let mut values = vec![0.0; scale.len()];
            values.iter_mut().step_by(lora.rank + 1).for_each(|value| *value = lora.scale());
            device::write_floats(device, scale, &values)?;
        }
        let kept = self.routers.map(|routers| [routers.corrections, routers.loads]);
        let mut kept = kept.into_iter().flatten().flatten();
        kept.try_for_each(|out| device.submit(stream, &Op::Fill { out, value: 0.0 }))?;
        let fill = |tables: Option<RotaryTables>, base, scaling| {
            let Some(RotaryTables { cos, sin }) = tables else { return Ok(()) };
            device.submit(stream, &Op::RotaryTable { cos, sin, base, scaling })
        };
        if let Position::Rotary { base, scaling, .. } = model.position {
            fill(self.rotary, base, scaling)?;
        }
        model.local_rotary().map_or(Ok(()), |(base, scaling)| fill(self.local_rotary, base, scaling))
    }

    /// The tables of a layer with this window.
    pub(crate) fn rotary_of(&self, window: Option<usize>) -> Option<RotaryTables> {
        self.local_rotary.filter(|_| window.is_some()).or(self.rotary)
    }
}
