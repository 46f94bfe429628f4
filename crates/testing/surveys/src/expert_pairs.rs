//! Random pairs of layouts of models with experts: the same bits where they are promised, distances within the bounds
//! where those are, and choices of experts that differ only where logits nearly tie.

mod choices;
mod compare;
mod draw;
mod factors;
mod page;

pub use choices::{Chosen, chosen};
pub use compare::{Compared, compare};
pub use draw::{ExpertPair, draw};
pub(crate) use draw::{is_legal, model, parallelism, training};
pub use factors::factors;
pub(crate) use factors::of_layout;
pub use page::{Count, page};
