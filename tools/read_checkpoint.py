"""Reads a checkpoint by docs/checkpoint-format.md alone: python read_checkpoint.py CHECKPOINT [TENSOR]

Prints each tensor's shape and mean, or the values of one. Needs no package; with xxhash installed, every block is compared with its hash.
"""

import array
import itertools
import json
import math
import sys
from pathlib import Path

try:
    from xxhash import xxh3_64_hexdigest
except ImportError:
    xxh3_64_hexdigest = None

BLOCK_BYTES = 1 << 20
DIGITS = slice(9, 25)


def check(subject, data, expected):
    if xxh3_64_hexdigest and xxh3_64_hexdigest(data) != expected:
        raise SystemExit(f"{subject} differs from its hash: the checkpoint is damaged")


def read_manifest(folder):
    text = (folder / "manifest.json").read_bytes()
    check("the manifest", text[: DIGITS.start] + b"0" * 16 + text[DIGITS.stop :], text[DIGITS].decode())
    manifest = json.loads(text)
    if manifest["format"] > 1:
        raise SystemExit(f"format must be 1; got {manifest['format']}")
    return manifest


def read_tensor(folder, manifest, name):
    """The elements in row-major order; those of no piece are not-a-number."""
    tensor = manifest["tensors"][name]
    shape = tensor["shape"]
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    values = array.array("f", [math.nan]) * math.prod(shape)
    for piece in tensor["pieces"]:
        start, extent = piece["start"], piece["extent"]
        with open(folder / manifest["files"][piece["file"]]["name"], "rb") as file:
            file.seek(piece["offset"])
            data = file.read(4 * math.prod(extent))
        for number, expected in enumerate(piece["xxh3"]):
            check(f"a block of {name}", data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES], expected)
        elements = array.array("f", data)
        if sys.byteorder == "big":
            elements.byteswap()
        # A row of the piece is a run of the tensor.
        row = extent[-1]
        outer = [range(first, first + count) for first, count in zip(start[:-1], extent[:-1])]
        for number, index in enumerate(itertools.product(*outer)):
            at = sum(place * stride for place, stride in zip(index, strides)) + start[-1]
            values[at : at + row] = elements[number * row : (number + 1) * row]
    return values


def main():
    folder = Path(sys.argv[1])
    manifest = read_manifest(folder)
    if len(sys.argv) > 2:
        print(*read_tensor(folder, manifest, sys.argv[2]))
        return
    print(f"after step {manifest['state']['steps']}")
    for name, tensor in manifest["tensors"].items():
        values = read_tensor(folder, manifest, name)
        print(f"{name} {tensor['shape']} mean {math.fsum(values) / max(len(values), 1):.6g}")


main()
