//! The optimizer of a run: AdamW for all parameters, or Muon for the matrices of layers and AdamW for the others.

use std::ops::Range;

use crate::layout::{Segment, UnitLayout};
use crate::names::names;
use crate::params::{ParamSpec, Sharding};

/// The optimizer of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// AdamW for every parameter.
    AdamW,
    /// Muon for the matrices of layers, AdamW for tables, the output matrix, norms and biases.
    Muon(Muon),
}

/// Muon (Jordan et al. 2024): the momentum of a matrix is orthogonalised before it is subtracted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// Decay of the momentum.
    pub momentum: f32,
    /// Factor of the learning rate by the shape of a matrix.
    pub scale: MuonScale,
}

/// Factor of the learning rate of a matrix `W[rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuonScale {
    /// `0.2 sqrt(max(rows, cols))`: updates have the root mean square of AdamW's (Liu et al., arXiv 2502.16982).
    AdamW,
    /// `sqrt(max(1, rows / cols))`: that of the first description.
    Shape,
}

names! { MuonScale: "adamw" = AdamW, "shape" = Shape }

impl MuonScale {
    /// The factor for a matrix of these rows and columns, of all ranks together.
    pub fn factor(self, [rows, cols]: [usize; 2]) -> f64 {
        match self {
            MuonScale::AdamW => 0.2 * (rows.max(cols) as f64).sqrt(),
            MuonScale::Shape => (rows as f64 / cols as f64).max(1.0).sqrt(),
        }
    }
}

/// How one parameter is updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateMethod {
    /// By AdamW, element by element.
    AdamW,
    /// By Muon, as a whole.
    Muon(Muon),
}

impl Optimizer {
    /// How `param` is updated: Muon is for the maps of layers, which are the matrices that tensor parallelism splits
    /// between heads or between columns of the feed-forward block, and those of experts.
    pub fn method(self, param: &ParamSpec) -> UpdateMethod {
        match (self, param.sharding, param.shape.len()) {
            (Optimizer::Muon(muon), Sharding::Split { .. }, 2..) => UpdateMethod::Muon(muon),
            (Optimizer::Muon(_) | Optimizer::AdamW, _, _) => UpdateMethod::AdamW,
        }
    }

    /// The matrices of a unit that Muon updates, with its numbers; of a stack of matrices, each that a rank has.
    pub fn muon_matrices(self, layout: &UnitLayout) -> Vec<(Segment, Muon)> {
        let matrices = |segment: &Segment| match self.method(&segment.param) {
            UpdateMethod::AdamW => vec![],
            UpdateMethod::Muon(muon) => segment.matrices().into_iter().map(|matrix| (matrix, muon)).collect(),
        };
        layout.segments.iter().flat_map(matrices).collect()
    }

    /// The elements of the flat buffer that have a second moment: those from the first parameter of AdamW on. Of
    /// layers, matrices come first.
    pub fn second_moments(self, layout: &UnitLayout) -> Range<usize> {
        let is_of_muon = |segment: &&Segment| matches!(self.method(&segment.param), UpdateMethod::Muon(_));
        let leading = layout.segments.iter().take_while(is_of_muon).last();
        leading.map_or(0, |segment| segment.range().end)..layout.padded_len()
    }

    /// Whether a run keeps a second moment of `param`, an element of whose unit has one.
    pub fn has_second_moment(self, param: &ParamSpec, layout: &UnitLayout) -> bool {
        let from = self.second_moments(layout).start;
        layout.segment(&param.name).is_some_and(|segment| segment.offset >= from)
    }
}
