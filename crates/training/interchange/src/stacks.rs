//! Stacks of matrices: folders have a tensor for each matrix of each expert.

use config::{ParamSpec, Sharding};
use mesh::Region;

/// One matrix of a stack, as a parameter of its own; of another parameter, itself.
pub struct Matrix {
    pub param: ParamSpec,
    /// Its indices among the leading dims of the stack.
    lead: Vec<usize>,
}

/// Dims of a matrix.
const MATRIX: usize = 2;

/// The matrices of `param` in the order of its elements. Those of `experts.gate_up` are `experts.E.gate` and
/// `experts.E.up`, and those of another stack have the expert's number in the same place.
pub fn matrices(param: &ParamSpec) -> Vec<Matrix> {
    let lead = param.shape.len().saturating_sub(MATRIX);
    if lead == 0 {
        return vec![Matrix { param: param.clone(), lead: vec![] }];
    }
    let number: usize = param.shape[..lead].iter().product();
    (0..number).map(|index| matrix(param, indices(index, &param.shape[..lead]))).collect()
}

/// The indices of element `index` of a row-major array of these `sizes`.
fn indices(index: usize, sizes: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut indices = vec![0; sizes.len()];
    for (place, size) in indices.iter_mut().zip(sizes).rev() {
        (*place, rest) = (rest % size, rest / size);
    }
    indices
}

fn matrix(param: &ParamSpec, lead: Vec<usize>) -> Matrix {
    const STACK: &str = ".experts.";
    let (layer, part) = param.name.split_once(STACK).unwrap_or((&param.name, ""));
    let part = match lead[1..] {
        [] => part,
        [0, ..] => "gate.weight",
        [_, ..] => "up.weight",
    };
    let name = format!("{layer}{STACK}{}.{part}", lead[0]);
    let shape = param.shape[lead.len()..].to_vec();
    Matrix { param: ParamSpec { name, shape, sharding: Sharding::Replicated, ..param.clone() }, lead }
}

impl Matrix {
    /// A box of the matrix as a box of the stack.
    pub fn in_stack(&self, region: &Region) -> Region {
        let start = self.lead.iter().chain(&region.start).copied().collect();
        let extent = self.lead.iter().map(|_| &1).chain(&region.extent).copied().collect();
        Region { start, extent }
    }

    /// The part of the box `region` of the stack that is in this matrix.
    pub fn part_of(&self, region: &Region) -> Option<Region> {
        let leading = self.lead.len();
        let is_inside = |(at, (start, extent)): (&usize, (&usize, &usize))| (*start..start + extent).contains(at);
        let mut bounds = self.lead.iter().zip(region.start.iter().zip(&region.extent));
        bounds
            .all(is_inside)
            .then(|| Region { start: region.start[leading..].to_vec(), extent: region.extent[leading..].to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use config::{Balance, ExpertsSpec, ModelSpec, RouterScores, RouterWeights, Routing, RunConfig, Unit, params};

    use super::*;

    #[test]
    fn a_box_of_a_stack_is_a_box_of_each_matrix() {
        let (scores, weights) = (RouterScores::Softmax, RouterWeights::Scores);
        let routing = Routing { scores, weights, scale: 1.0, groups: None };
        let (number, per_token, hidden, balance) = (3, 1, 5, Balance::NONE);
        let experts = ExpertsSpec {
            number,
            per_token,
            hidden,
            shared: None,
            first_layer: 0,
            layer_interval: 1,
            routing,
            balance,
        };
        let activation = config::Activation::SwiGlu;
        let plain = ModelSpec { biases: config::Biases::Off, ..RunConfig::quick_start().model };
        let model = ModelSpec { hidden: 4, experts: Some(experts), activation, ..plain };
        let list = params(&model, Unit::Experts(1));
        let names: Vec<String> = list.iter().flat_map(matrices).map(|matrix| matrix.param.name).collect();
        let expected = ["0.gate", "0.up", "1.gate", "1.up", "2.gate", "2.up", "0.down", "1.down", "2.down"];
        assert_eq!(names, expected.map(|name| format!("layers.1.experts.{name}.weight")));

        let region = Region { start: vec![1, 0, 2, 1], extent: vec![2, 2, 3, 3] };
        let parts = matrices(&list[0]).into_iter().map(|matrix| {
            let part = matrix.part_of(&region)?;
            Some((part.start.clone(), part.extent.clone(), matrix.in_stack(&part).start))
        });
        let part = |expert, half| Some((vec![2, 1], vec![3, 3], vec![expert, half, 2, 1]));
        assert_eq!(parts.collect::<Vec<_>>(), [None, None, part(1, 0), part(1, 1), part(2, 0), part(2, 1)]);
    }
}
