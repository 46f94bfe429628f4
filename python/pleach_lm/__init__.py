"""Reads what runs of pleach leave, as numpy arrays, and starts runs.

>>> import pleach_lm
>>> pleach_lm.pleach("train", "--set", "train.steps=20")
>>> run = pleach_lm.Run("runs/latest")
>>> run.steps["loss"][-1], run.config["model"]["hidden"]
>>> run.weights()["embedding.token.weight"].shape
"""

from .checkpoint import Checkpoint, DamagedError
from .command import pleach, program
from .run import Run
from .tensors import read_safetensors

__all__ = ["Checkpoint", "DamagedError", "Run", "pleach", "program", "read_safetensors"]
