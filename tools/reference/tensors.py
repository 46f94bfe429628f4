"""Writes tensors to a file that Rust's `safetensors` reads: a length, a header in JSON, the bytes.

Written here in a few lines so that PyTorch is all that the scripts of this folder need.
"""

import json
import pathlib
import struct

import torch

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.int8: "I8", torch.bfloat16: "BF16"}


def single(value: float) -> float:
    """`value` as a number in single precision, which is how both sides are given it."""
    return float(torch.tensor(value, dtype=torch.float32))


def save(path: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes `tensors` to `path`. Wider elements come first, as the format demands, then names in order."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, parts, offset = {}, [], 0
    for name in order:
        tensor = tensors[name].detach().contiguous()
        values = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
        data = values.astype(values.dtype.newbyteorder("<")).tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes")
