#!/bin/sh
# Builds a program that runs on GPUs without a compiler: it carries the PTX of all kernels, compressed.
#
#   tools/release.sh CUDA_FOLDER    the folder of NVRTC: tools/install-cuda.sh installs the pinned one into target/cuda
#
# The program is target/dist/pleach. It carries PTX of our own kernels, and no file of NVIDIA's.
set -eu

cuda=${1:?the folder of NVRTC}
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
archive=$(cd "$target" && pwd)/kernels

cargo build --profile dist -p surveys --bin survey
"$target/dist/survey" kernel-archive "$archive" --cuda "$cuda"
PLEACH_KERNELS=$archive cargo build --profile dist -p cli
echo "$target/dist/pleach: $(wc -c < "$target/dist/pleach") bytes"
PLEACH_CUDA='' "$target/dist/pleach" doctor | grep -A 1 'GPU code'
