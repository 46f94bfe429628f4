//! The state of each parameter between two steps.

use config::Averages;

/// One of the tensors of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatePart {
    /// The weights that the optimizer updates: in single precision, whatever layers read.
    Weights,
    /// Mean of gradients.
    FirstMoment,
    /// Mean of squared gradients.
    SecondMoment,
    /// Moving average of the weights, where a run keeps one.
    Average,
}

impl StatePart {
    /// All of them.
    pub const ALL: [StatePart; 4] =
        [StatePart::Weights, StatePart::FirstMoment, StatePart::SecondMoment, StatePart::Average];

    /// The parts of a run with these averages.
    pub fn kept(averages: Averages) -> &'static [StatePart] {
        match averages {
            Averages::Off => &StatePart::ALL[..3],
            Averages::Kept => &StatePart::ALL,
        }
    }

    /// The name in a checkpoint of this tensor of the parameter `param`: weights have the name of the parameter.
    pub fn tensor(self, param: &str) -> String {
        match self {
            StatePart::Weights => param.into(),
            StatePart::FirstMoment => format!("first_moment.{param}"),
            StatePart::SecondMoment => format!("second_moment.{param}"),
            StatePart::Average => format!("average.{param}"),
        }
    }
}
