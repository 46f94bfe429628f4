//! Every operation has the bits of the CPU: shapes, strides and values at random, on the GPU in software.
//! Needs NVRTC in the folder of PLEACH_CUDA.

mod activation;
mod any_shape;
mod attention;
mod attention_blocks;
mod bench;
mod case;
mod cross_entropy;
mod declared;
mod dropout;
mod element_wise;
mod embedding;
mod every_number;
pub mod experts;
mod fixed_point;
mod fused;
mod join_attention;
mod kept_ends;
mod mat_mul;
mod mat_mul_blocks;
mod mat_mul_turns;
mod mat_mul_wgmma;
mod mutants;
mod mutations;
mod mutations_of_attention;
mod mutations_of_blocks;
mod norm;
mod optimizer;
mod refusals;
mod rotary;
mod rounded_sum;
mod soft_cap;
mod sums;
