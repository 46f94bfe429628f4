//! Silent errors of hybrid-parallel training, one test for each: it holds on the path that runs, and finds its fault
//! when the fault is injected into that path.
//!
//! Faults are data (a parameter's declaration, a program's line, a token source) or wrappers (of a rank's device or of
//! one of its groups). The same check judges the clean run and the faulty one.

pub mod findings;
mod rig;

mod accumulation;
mod batch_ramp;
mod clipping;
mod context_parallel;
mod dropout_masks;
mod embedding_gradient;
mod every_gradient;
mod finite_differences;
mod first_difference;
mod global_norm;
mod initial_weights;
mod loss_scale;
mod muon;
mod narrow_sums;
mod norm_order;
mod one_norm;
mod ownership;
mod page;
mod parameter_groups;
mod per_head_norms;
mod recomputation;
mod replicas;
mod sequence_parallel;
mod sharded_state;
mod tied_table;
mod token_counts;
mod uninitialised_memory;
mod vocabulary;
mod z_loss;
