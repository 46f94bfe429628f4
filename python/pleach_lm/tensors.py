"""Files of safetensors as numpy arrays."""

import json
from pathlib import Path

import numpy

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def as_array(dtype, data, shape):
    """An array of the elements in `data`; bf16, which numpy does not have, becomes float32 without a loss."""
    if dtype == "BF16":
        bits = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        return bits.view("<f4").reshape(shape)
    if dtype not in _TYPES:
        raise ValueError(f"a tensor's type must be BF16 or one of {', '.join(_TYPES)}; got {dtype}")
    return numpy.frombuffer(data, _TYPES[dtype]).reshape(shape)


def read_safetensors(path, names=None):
    """The tensors of a file by name: all, or those in `names`."""
    tensors = {}
    with open(Path(path), "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name in header if names is None else names:
            start, end = header[name]["data_offsets"]
            file.seek(8 + length + start)
            tensors[name] = as_array(header[name]["dtype"], file.read(end - start), header[name]["shape"])
    return tensors
