//! Tests of the public interface of `sim`.

mod axes;
mod cluster_profiles;
mod experts;
mod flops;
mod group_calls;
mod head;
mod layer_widths;
mod peaks;
mod prices;
mod trainers;
mod training_case;
mod windows;
