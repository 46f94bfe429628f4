//! Weights with their adapters added to them: `W + scale B A`.

use config::Unit;
use config::{LoraSpec, ModelSpec, ParamSpec, params};
use mesh::Region;
use train::{SourceError, TensorSource};

/// The weights of a model, merged with its adapters where it has some.
pub struct MergedWeights<'a> {
    weights: &'a dyn TensorSource,
    model: &'a ModelSpec,
}

impl<'a> MergedWeights<'a> {
    /// The merged weights of `model`, from `weights`.
    pub fn new(weights: &'a dyn TensorSource, model: &'a ModelSpec) -> MergedWeights<'a> {
        MergedWeights { weights, model }
    }

    /// The model that they are weights of: the same without adapters.
    pub fn model(&self) -> ModelSpec {
        ModelSpec { lora: None, ..self.model.clone() }
    }

    /// Adds `scale B A` to the box `region` of the matrix that the adapter `[a, b]` belongs to.
    fn add(
        &self,
        lora: &LoraSpec,
        [a, b]: [&ParamSpec; 2],
        region: &Region,
        values: &mut [f32],
    ) -> Result<(), SourceError> {
        let ([first_row, first_col], [rows, cols]) =
            ([region.start[0], region.start[1]], [region.extent[0], region.extent[1]]);
        let [mut of_a, mut of_b] = [vec![0.0f32; lora.rank * cols], vec![0.0f32; rows * lora.rank]];
        self.weights.get(a, &Region { start: vec![0, first_col], extent: vec![lora.rank, cols] }, &mut of_a)?;
        self.weights.get(b, &Region { start: vec![first_row, 0], extent: vec![rows, lora.rank] }, &mut of_b)?;
        let scale = f64::from(lora.scale());
        for (row, values) in values.chunks_exact_mut(cols).enumerate() {
            for (col, value) in values.iter_mut().enumerate() {
                let term =
                    |inner: usize| f64::from(of_b[row * lora.rank + inner]) * f64::from(of_a[inner * cols + col]);
                let sum: f64 = (0..lora.rank).map(term).sum();
                *value = (f64::from(*value) + scale * sum) as f32;
            }
        }
        Ok(())
    }
}

impl TensorSource for MergedWeights<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        self.weights.get(param, region, values)?;
        let (Some(lora), Unit::Layer(layer)) = (&self.model.lora, param.unit) else { return Ok(()) };
        let Some(linear) = param.name.strip_suffix(".weight") else { return Ok(()) };
        let adapters = params(self.model, Unit::Adapters(layer));
        let named = |part: &str| adapters.iter().find(|own| own.name == format!("{linear}.{part}"));
        match (named("lora_a"), named("lora_b")) {
            (Some(a), Some(b)) => self.add(lora, [a, b], region, values),
            (Some(_) | None, _) => Ok(()),
        }
    }
}
