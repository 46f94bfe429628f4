#!/bin/sh
# NVIDIA's libraries and headers for the tests of crates that use them: NVRTC, cuBLASLt, cuDNN, NCCL, and headers of the driver, as
# Python wheels, about 1.9 GB installed. No GPU and no driver are needed. Needs Python 3 with venv and pip, and g++ for the
# comparison with headers. Wheels go to target/cuda. It prints the folder of each library.
set -eu
cd "$(dirname "$0")/.."

# One release of CUDA, and the oldest NCCL that pleach accepts.
wheels="
    nvidia-cuda-nvrtc==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-crt==13.0.88
    nvidia-cuda-cccl==13.0.85
    nvidia-cublas==13.1.0.3
    nvidia-cudnn-cu13==9.28.1.4
    nvidia-nccl-cu13==2.28.9"
folder=target/cuda
installed=$folder/installed-wheels
if [ "$(cat "$installed" 2> /dev/null)" != "$wheels" ]; then
    python3 -m venv "$folder"
    # shellcheck disable=SC2086
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-cache-dir $wheels
    printf '%s' "$wheels" > "$installed"
fi

missing=0
for file in cu13/lib/libnvrtc.so.13 cu13/lib/libcublasLt.so.13 cudnn/lib/libcudnn.so.9 nccl/lib/libnccl.so.2 cu13/include/cuda.h \
    cudnn/include/cudnn.h nccl/include/nccl.h; do
    found=$(find "$folder" -path "*/nvidia/$file")
    if [ -n "$found" ]; then
        echo "$found"
    else
        echo "$file: missing below $folder" >&2
        missing=1
    fi
done
exit "$missing"
