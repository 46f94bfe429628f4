//! Operations of mixtures of experts.

pub mod activation;
pub mod balance;
mod chosen;
pub mod products;
pub mod route;
pub mod rows;
