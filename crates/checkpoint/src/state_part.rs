//! The state of each parameter between two steps.

/// One of the tensors of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatePart {
    /// The weights that the optimizer updates: in single precision, whatever layers read.
    Weights,
    /// Mean of gradients.
    FirstMoment,
    /// Mean of squared gradients.
    SecondMoment,
}

impl StatePart {
    /// All of them.
    pub const ALL: [StatePart; 3] = [StatePart::Weights, StatePart::FirstMoment, StatePart::SecondMoment];

    /// The name in a checkpoint of this tensor of the parameter `param`: weights go by the parameter's own.
    pub fn tensor(self, param: &str) -> String {
        match self {
            StatePart::Weights => param.into(),
            StatePart::FirstMoment => format!("first_moment.{param}"),
            StatePart::SecondMoment => format!("second_moment.{param}"),
        }
    }
}
