//! Random pairs of layouts of small random models: how far two runs are apart that differ in rounding alone, and how
//! near that is to the bounds of crate `prove`.

mod draw;
mod measure;
mod table;

pub use draw::{Pair, draw};
pub use measure::{Compared, LossScale, Share, has_gradients_of, measure};
pub use table::{Kind, Shares, table};
