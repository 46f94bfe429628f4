//! Whole runs, compared with each other and with what they must be.

mod allocations;
mod arenas;
mod bounds;
mod checklist;
mod conservation;
mod context_memory;
mod exact;
mod experts;
mod failures;
mod gpu_runs;
mod initial_weights;
mod layer_widths;
mod library_order;
mod precision;
mod pytorch;
mod resume;
mod router_balance;
mod router_evaluations;
mod router_figures;
mod sum_tree;
mod threads;
mod unlike_layers;
mod unseen_keys;
mod zero_memory;
