//! The words for pieces of a model and of a batch: [`Unit`], [`Stage`], [`Microbatch`].

use std::fmt;

/// Parameters that are gathered and reduced together (FSDP's unit).
///
/// `Embedding`, `Layer` and `Head` also compute. `Table`, the token-embedding table, only holds parameters:
/// it is a unit of its own because a tied model reads it at both ends of the pipeline, with one gradient
/// accumulator per use. `Adapters` only holds parameters, too: those of the linear layers of a layer, which alone
/// are trained where a model has them. So does `Experts`, whose parameters may be split over other axes than those of
/// the layer that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The token-embedding table `W[V/tp, D]`.
    Table,
    /// The rest of the input: learned positions and a norm, if the model has them.
    Embedding,
    /// One transformer layer, counted from 0 over the whole model.
    Layer(u32),
    /// Final norm, the top query's layer if the model has one, output matrix (unless tied) and loss.
    Head,
    /// Adapters of the linear layers of this layer; none where the model has no adapters.
    Adapters(u32),
    /// Experts of this layer; none where the layer has a dense feed-forward block.
    Experts(u32),
}

impl Unit {
    /// The computing units of a model in forward order: embedding, layers, head.
    pub fn computing(num_layers: usize) -> impl DoubleEndedIterator<Item = Unit> + Clone {
        std::iter::once(Unit::Embedding)
            .chain((0..num_layers as u32).map(Unit::Layer))
            .chain(std::iter::once(Unit::Head))
    }

    /// The units of a model that may have parameters, in forward order; the table first, experts and then adapters
    /// after their layer.
    pub fn holding(num_layers: usize) -> impl Iterator<Item = Unit> + Clone {
        let of_layer = |unit| match unit {
            Unit::Layer(layer) => [Some(Unit::Experts(layer)), Some(Unit::Adapters(layer))],
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => [None, None],
        };
        let with_own = move |unit| std::iter::once(unit).chain(of_layer(unit).into_iter().flatten());
        let computing = Unit::computing(num_layers).flat_map(with_own);
        std::iter::once(Unit::Table).chain(computing)
    }

    /// Whether it is one of the stack: those alone keep activations for a backward pass that reads parameters.
    pub fn is_repeated(self) -> bool {
        match self {
            Unit::Layer(_) => true,
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => false,
        }
    }

    /// Whether its parameters are added to those of linear layers, which are then not trained.
    pub fn is_adapters(self) -> bool {
        match self {
            Unit::Adapters(_) => true,
            Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Experts(_) => false,
        }
    }

    /// Whether its forward pass makes its gradients, so that its backward passes are empty.
    pub fn makes_gradients_forward(self) -> bool {
        match self {
            Unit::Head => true,
            Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Adapters(_) | Unit::Experts(_) => false,
        }
    }

    /// Whether both ends of the pipeline read its parameters.
    pub fn is_read_at_both_ends(self, tied_embeddings: Tied) -> bool {
        match self {
            Unit::Table => tied_embeddings == Tied::Yes,
            Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => false,
        }
    }

    /// The computing unit whose output this unit reads, or `None` for the embedding and the table.
    pub fn previous(self, num_layers: usize) -> Option<Unit> {
        match self {
            Unit::Table | Unit::Embedding | Unit::Adapters(_) | Unit::Experts(_) => None,
            Unit::Layer(0) => Some(Unit::Embedding),
            Unit::Layer(layer) => Some(Unit::Layer(layer - 1)),
            Unit::Head if num_layers == 0 => Some(Unit::Embedding),
            Unit::Head => Some(Unit::Layer(num_layers as u32 - 1)),
        }
    }

    /// The units whose parameters this computing unit reads, in flat-buffer order: at most [`Unit::MOST_READ`].
    pub fn reads_parameters_of(self, tied_embeddings: Tied) -> impl Iterator<Item = Unit> {
        let read = match (self, tied_embeddings) {
            (Unit::Table | Unit::Adapters(_) | Unit::Experts(_), _) => [None; Unit::MOST_READ],
            (Unit::Embedding, _) | (Unit::Head, Tied::Yes) => [Some(Unit::Table), Some(self), None],
            (Unit::Layer(layer), _) => [Some(self), Some(Unit::Experts(layer)), Some(Unit::Adapters(layer))],
            (Unit::Head, Tied::No) => [Some(self), None, None],
        };
        read.into_iter().flatten()
    }

    /// The most units whose parameters a computing unit reads.
    pub const MOST_READ: usize = 3;
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Table => f.write_str("table"),
            Unit::Embedding => f.write_str("embedding"),
            Unit::Layer(layer) => write!(f, "layer {layer}"),
            Unit::Head => f.write_str("head"),
            Unit::Adapters(layer) => write!(f, "adapters of layer {layer}"),
            Unit::Experts(layer) => write!(f, "experts of layer {layer}"),
        }
    }
}

/// Whether the head reads the token table (weights shared between input and output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tied {
    /// The head multiplies with the token table.
    Yes,
    /// The head has an output matrix of its own.
    No,
}

/// A contiguous slice of the model's units: `0 .. pp * stages_per_rank`, in forward order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stage(pub u32);

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}", self.0)
    }
}

/// One forward/backward grain of a step, counted from 0 within the step and the data-parallel replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Microbatch(pub u32);

impl fmt::Display for Microbatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "microbatch {}", self.0)
    }
}
