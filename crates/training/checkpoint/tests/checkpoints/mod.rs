//! Checkpoints: what is saved in pieces is read in others, what is not committed does not exist, and what is not as it
//! was written is found.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boxes;
mod commits;
mod damage;
mod kills;
mod manifests;
mod older;
mod processes;
mod rig;
