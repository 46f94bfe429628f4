#!/bin/sh
# Builds a program that runs on GPUs without a compiler: it carries the PTX of all kernels, compressed.
#
#   tools/release.sh CUDA_FOLDER    the folder of NVRTC: tools/install-cuda.sh installs the pinned one into target/cuda
#
# The program is target/release/pleach. It carries PTX of our own kernels, and no file of NVIDIA's.
set -eu

cuda=${1:?the folder of NVRTC}
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
archive=$(cd "$target" && pwd)/kernels

cargo build --release -p surveys --bin kernel_archive
"$target/release/kernel_archive" "$archive" --cuda "$cuda"
PLEACH_KERNELS=$archive cargo build --release -p cli
echo "$target/release/pleach: $(wc -c < "$target/release/pleach") bytes"
PLEACH_CUDA='' "$target/release/pleach" doctor | grep -A 1 'GPU code'
