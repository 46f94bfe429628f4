//! Kernels, against oracles of their own and vectors of another program.

mod attention;
mod blocks;
mod experts;
mod gemm;
mod joined_attention;
mod kernels;
mod narrow;
mod pairs;
mod soft_caps;
mod threads;
mod vectors;
