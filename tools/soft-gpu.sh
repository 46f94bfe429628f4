#!/bin/sh
# NVIDIA's libraries in software, for runs with run.device = "cuda" on a machine without a GPU:
#
#   tools/soft-gpu.sh FOLDER [GPUS]    then PLEACH_CUDA=FOLDER pleach train RUN.toml --set run.device=cuda
#
# FOLDER has the driver with GPUS GPUs (1 by default), cuBLASLt, cuDNN, NCCL and a way to NVRTC, which is NVIDIA's own: its
# folder is that of PLEACH_CUDA, or target/cuda, where tools/install-cuda.sh installs it.
set -eu
folder=${1:?the folder for the libraries}
cuda=${PLEACH_CUDA:-target/cuda}
nvrtc=$(find "$cuda" -name libnvrtc.so.13 2> /dev/null | head -n 1)
if [ -z "$nvrtc" ]; then
    echo "libnvrtc.so.13 is not in $cuda; run tools/install-cuda.sh" >&2
    exit 1
fi
cargo build --release -p softgpu_driver
mkdir -p "$folder"
cp "${CARGO_TARGET_DIR:-target}/release/libsoftgpu_driver.so" "$folder/libcuda.so.1"
for name in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
    ln -f "$folder/libcuda.so.1" "$folder/$name"
done
printf 'gpus = %s\nnvrtc = %s\n' "${2:-1}" "$(realpath "$nvrtc")" > "$folder/softgpu.settings"
