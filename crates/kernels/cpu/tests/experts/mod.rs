//! Operations of mixtures of experts against their definitions: on every instruction set, with any number of threads,
//! and with rows that nothing may touch.

mod activation;
mod balance;
mod machine;
mod products;
mod route;
mod route_backward;
mod rows;
mod whole_layer;
