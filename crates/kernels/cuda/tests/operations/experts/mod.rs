//! Operations of mixtures of experts.

pub mod activation;
mod chosen;
pub mod products;
pub mod route;
pub mod rows;
