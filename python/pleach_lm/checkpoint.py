"""Checkpoints, by docs/checkpoint-format.md."""

import json
import math
from pathlib import Path

import numpy

from .tensors import as_array

try:
    from xxhash import xxh3_64_hexdigest
except ImportError:
    xxh3_64_hexdigest = None

_BLOCK_BYTES = 1 << 20
_FORMAT = 1
# The place of the manifest's own hash in it.
_DIGITS = slice(9, 25)


class DamagedError(ValueError):
    """A checkpoint is not the one that was written."""


def _check(subject, data, expected):
    """Compares data with its hash, where the package xxhash is installed."""
    if xxh3_64_hexdigest is not None and xxh3_64_hexdigest(data) != expected:
        raise DamagedError(f"{subject} differs from its hash: the checkpoint is damaged")


class Checkpoint:
    """A checkpoint: `steps`, `state`, names of tensors, and `checkpoint[name]` as an array, whatever the layout of the run was."""

    def __init__(self, path):
        self.path = Path(path)
        text = (self.path / "manifest.json").read_bytes()
        blank = text[: _DIGITS.start] + b"0" * 16 + text[_DIGITS.stop :]
        _check(f"{self.path / 'manifest.json'}", blank, text[_DIGITS].decode())
        self._manifest = json.loads(text)
        if self._manifest["format"] > _FORMAT:
            raise ValueError(f"{self.path}: format must be {_FORMAT}; got {self._manifest['format']}")

    @property
    def state(self):
        """The state of the run without its tensors."""
        return self._manifest["state"]

    @property
    def steps(self):
        """Steps that were done."""
        return self.state["steps"]

    def __iter__(self):
        return iter(self._manifest["tensors"])

    def __len__(self):
        return len(self._manifest["tensors"])

    def __getitem__(self, name):
        record = self._manifest["tensors"][name]
        values = numpy.full(record["shape"], numpy.nan, "<f4")
        for piece in record["pieces"]:
            count = math.prod(piece["extent"])
            with open(self.path / self._manifest["files"][piece["file"]]["name"], "rb") as file:
                file.seek(piece["offset"])
                data = file.read(4 * count)
            if len(data) < 4 * count:
                raise DamagedError(f"{file.name} ends before its tensor {name}: the checkpoint is damaged")
            for number, expected in enumerate(piece["xxh3"]):
                block = data[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
                _check(f"block {number} of {name} in {file.name}", block, expected)
            box = tuple(slice(start, start + extent) for start, extent in zip(piece["start"], piece["extent"]))
            values[box] = as_array(record["dtype"], data, piece["extent"])
        return values
