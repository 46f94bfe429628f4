//! Weights that a run begins with: numbers, or nothing can be learned from them.

use config::ParamSpec;
use mesh::Region;

use crate::setup::source::{SourceError, TensorSource};

/// A source that refuses what is infinite or no number.
pub(crate) struct FiniteSource<'a>(pub(crate) &'a dyn TensorSource);

impl TensorSource for FiniteSource<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        self.0.get(param, region, values)?;
        match values.iter().find(|value| !value.is_finite()) {
            None => Ok(()),
            Some(value) => Err(SourceError::NotFinite { name: param.name.clone(), value: *value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Filled(f32);

    impl TensorSource for Filled {
        fn get(&self, _: &ParamSpec, _: &Region, values: &mut [f32]) -> Result<(), SourceError> {
            values.fill(self.0);
            Ok(())
        }
    }

    #[test]
    fn what_is_not_finite_is_named() {
        let model = config::RunConfig::quick_start().model;
        let param = &config::params(&model, config::Unit::Table)[0];
        let (region, mut values) = (Region::whole(&[2]), [0.0; 2]);
        let message = |value: f32, values: &mut [f32]| {
            FiniteSource(&Filled(value)).get(param, &region, values).map_err(|error| error.to_string())
        };
        assert_eq!(message(3e38, &mut values), Ok(()));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let said = message(value, &mut values).expect_err("refused");
            let expected = format!(
                "tensor {} has a value that is {value}, and weights must be finite; use those of an earlier step",
                param.name
            );
            assert_eq!(said, expected);
        }
    }
}
