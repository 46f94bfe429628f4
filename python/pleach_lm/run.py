"""The folder of a run."""

import json
import tomllib
from pathlib import Path

import numpy

from .checkpoint import Checkpoint
from .tensors import read_safetensors


class Run:
    """The records in a run's folder, read when they are asked for."""

    def __init__(self, folder):
        self.folder = Path(folder)
        if not (self.folder / "run.toml").is_file():
            raise FileNotFoundError(f"{self.folder} must be the folder of a run; it has no run.toml")

    @property
    def config(self):
        """The run file as dictionaries: `run.config["model"]["hidden"]`."""
        return tomllib.loads((self.folder / "run.toml").read_text(encoding="utf-8"))

    def records(self):
        """All lines of metrics.jsonl, which docs/metrics.md describes. A line that was cut off is left out."""
        records = []
        for line in (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    @property
    def steps(self):
        """Arrays by key, one element per step; NaN where a step has no number, and "" where it has no words."""
        return _columns([record for record in self.records() if "loss" in record])

    @property
    def held_out(self):
        """Arrays by key, one element per measurement."""
        return _columns([record for record in self.records() if "held_out_loss" in record])

    @property
    def events(self):
        """Dictionaries."""
        return [record for record in self.records() if "event" in record]

    def weights(self, names=None):
        """The weights after the last step as arrays by name: all, or those in `names`."""
        return read_safetensors(self.folder / "weights.safetensors", names)

    @property
    def checkpoints(self):
        """Committed checkpoints, the newest last."""
        folders = sorted((self.folder / "checkpoints").glob("step-*/manifest.json"))
        return [Checkpoint(manifest.parent) for manifest in folders]


def _columns(records):
    keys = dict.fromkeys(key for record in records for key in record)
    columns = {key: _column([record.get(key) for record in records]) for key in keys}
    if "step" in columns:
        columns["step"] = columns["step"].astype(int)
    return columns


def _column(values):
    try:
        return numpy.array([numpy.nan if value is None else float(value) for value in values])
    except ValueError:
        # Words, such as the name of an anomaly.
        return numpy.array(["" if value is None else str(value) for value in values])
