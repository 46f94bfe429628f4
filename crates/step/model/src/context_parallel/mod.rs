//! Context parallelism: what a rank that has some tokens of each sequence needs from those that have the others.
//!
//! Everything but attention and the sum of losses works on rows, whatever tokens they are: the batch says where each is
//! in its sequence. [`slices`] tells which rows are which places; [`attention`] reaches the keys and values of
//! other ranks, with [`gather`] for all heads of the rank's own queries, with [`heads`] for some heads of all
//! queries, or with [`ring`] block by block; [`losses`] sums the losses of a sequence in the order of its tokens,
//! and [`choices`] brings the choices of experts of a sequence together.

pub(crate) mod attention;
pub(crate) mod choices;
mod gather;
mod heads;
pub(crate) mod keys_values;
pub(crate) mod losses;
mod ring;
pub(crate) mod slices;
