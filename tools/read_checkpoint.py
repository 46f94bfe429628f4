"""Reads a checkpoint by docs/checkpoint-format.md alone: python read_checkpoint.py CHECKPOINT [TENSOR]

Prints each tensor's shape and mean, or the values of one. Needs numpy; with xxhash installed, every block is compared with its hash.
"""

import json
import sys
from pathlib import Path

import numpy

try:
    from xxhash import xxh3_64_hexdigest
except ImportError:
    xxh3_64_hexdigest = None

BLOCK_BYTES = 1 << 20
DIGITS = slice(9, 25)


def check(what, data, expected):
    if xxh3_64_hexdigest and xxh3_64_hexdigest(data) != expected:
        raise SystemExit(f"{what} is not as it was written")


def read_manifest(folder):
    text = (folder / "manifest.json").read_bytes()
    check("the manifest", text[: DIGITS.start] + b"0" * 16 + text[DIGITS.stop :], text[DIGITS].decode())
    manifest = json.loads(text)
    if manifest["format"] > 1:
        raise SystemExit(f"format {manifest['format']} is not known here")
    return manifest


def read_tensor(folder, manifest, name):
    tensor = manifest["tensors"][name]
    values = numpy.full(tensor["shape"], numpy.nan, dtype="<f4")
    for piece in tensor["pieces"]:
        count = int(numpy.prod(piece["extent"], dtype=int))
        with open(folder / manifest["files"][piece["file"]]["name"], "rb") as file:
            file.seek(piece["offset"])
            data = file.read(4 * count)
        for number, expected in enumerate(piece["xxh3"]):
            check(f"a block of {name}", data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES], expected)
        box = tuple(slice(start, start + extent) for start, extent in zip(piece["start"], piece["extent"]))
        values[box] = numpy.frombuffer(data, dtype="<f4").reshape(piece["extent"])
    return values


def main():
    folder = Path(sys.argv[1])
    manifest = read_manifest(folder)
    if len(sys.argv) > 2:
        print(read_tensor(folder, manifest, sys.argv[2]))
        return
    print(f"after step {manifest['state']['steps']}")
    for name in manifest["tensors"]:
        values = read_tensor(folder, manifest, name)
        print(f"{name} {list(values.shape)} mean {values.mean(dtype=numpy.float64):.6g}")


main()
