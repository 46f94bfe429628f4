//! The grid of ranks, and the boxes of tensors that they own.
//!
//! A [`Mesh`] arranges the ranks of a world along six ordered [`Axis`] values. It is the only place
//! that computes a rank: everything else asks it for a [`Coord`] or a [`Group`]. The ranks of a
//! group are those that differ along a *set* of axes ([`AxisSet`]), so the same call answers "my
//! tensor-parallel peers" and "everybody who sums this gradient".
//!
//! The second half is about tensors: [`boxes`] turns a contiguous range of a row-major tensor into
//! at most `2 * ndim - 1` boxes ([`Region`]), and [`even_split`] is the one rule for dividing a
//! count among parts.
//!
//! The crate is pure: no I/O, no threads, no clock, no unsafe code.

#![forbid(unsafe_code)]

mod axis;
mod boxes;
mod coord;
mod grid;
mod group;
mod placement_order;
mod region;
mod split;
mod tiling;

pub use axis::{Axis, AxisSet, AxisSizes};
pub use boxes::boxes;
pub use coord::Coord;
pub use grid::{Mesh, MeshError};
pub use group::{Group, Rank};
pub use placement_order::PlacementOrder;
pub use region::{CopyRun, Region, copy_runs};
pub use split::{alternatives, divisors, even_split, greatest_common_divisor, multiples_around};
pub use tiling::{OwnedBox, TilingFault, tiling_fault};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as mesh;
#[cfg(test)]
mod tests;
