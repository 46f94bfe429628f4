//! Adapters of low rank for linear layers (Hu et al. 2021, arXiv 2106.09685): the key `model.lora`.

use crate::names::names;

/// A linear layer of a transformer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinearLayer {
    /// `attention.query`
    Query,
    /// `attention.key`
    Key,
    /// `attention.value`
    Value,
    /// `attention.output`
    Output,
    /// `ffn.gate`, where the activation is gated.
    Gate,
    /// `ffn.up`
    Up,
    /// `ffn.down`
    Down,
}

names! {
    LinearLayer:
    "query" = Query, "key" = Key, "value" = Value, "output" = Output, "gate" = Gate, "up" = Up, "down" = Down
}

impl LinearLayer {
    /// Its name among the parameters of a layer.
    pub const fn path(self) -> &'static str {
        match self {
            LinearLayer::Query => "attention.query",
            LinearLayer::Key => "attention.key",
            LinearLayer::Value => "attention.value",
            LinearLayer::Output => "attention.output",
            LinearLayer::Gate => "ffn.gate",
            LinearLayer::Up => "ffn.up",
            LinearLayer::Down => "ffn.down",
        }
    }
}

/// Adapters `y = W x + alpha / rank B (A x)`, with `A[rank, inputs]` and `B[outputs, rank]`, which alone are trained.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraSpec {
    /// Rows of `A` and columns of `B`.
    pub rank: usize,
    /// The factor of the adapter's output, times the rank.
    pub alpha: f32,
    /// The linear layers that have one, ascending, each once.
    pub targets: Vec<LinearLayer>,
}

impl LoraSpec {
    /// The factor of an adapter's output.
    pub fn scale(&self) -> f32 {
        (f64::from(self.alpha) / self.rank.max(1) as f64) as f32
    }
}
