"""Makes crates/app/cli/tests/published_weights: small files as `torch.save` writes them, for `tools/published_weights.py`.

    pip install torch
    python tools/reference/pickled.py

Those of GLM-130B and CodeGeeX hold the tensors of crates/app/cli/tests/hugging_face/glm and codegeex, in the forms of PyTorch since 1.6 and before.
Those of metaseq and GPT-NeoX-20B hold a few numbers, which `expected.json` has as well.
"""

import argparse
import json
import pathlib
import struct

import torch

TESTS = pathlib.Path(__file__).parents[2] / "crates/app/cli/tests"
FOLDER = TESTS / "published_weights"


def shard(path: pathlib.Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, all in bf16."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        first, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(data[first:end]), dtype=torch.bfloat16).reshape(entry["shape"])
    return tensors


def nested(tensors: dict[str, torch.Tensor]) -> dict:
    """Dictionaries in dictionaries, by the first dot of each name."""
    value: dict = {}
    for name, tensor in tensors.items():
        key, _, rest = name.partition(".")
        value.setdefault(key, {})[rest] = tensor
    return value


def numbers(first: int, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return torch.arange(first, first + count, dtype=torch.float16).reshape(shape)


def metaseq(rank: int) -> dict:
    """A part of two; the output map is a transposed view."""
    model = {
        "decoder.embed_tokens.weight": numbers(100 * rank, 3, 4),
        "decoder.embed_positions.weight": numbers(7, 10, 4),
        "decoder.layers.0.fc1.weight": numbers(20 + 100 * rank, 8, 4),
        "decoder.layers.0.fc2.weight": numbers(40 + 100 * rank, 8, 4).t(),
        "decoder.layers.1.fc1.weight": numbers(60 + 100 * rank, 8, 4),
    }
    return {"model": model, "args": argparse.Namespace(arch="transformer"), "num_updates": 3}


def neox(layer: int, rank: int) -> dict:
    """The files of a model of one layer, numbered 2: the token table before it, the final norm and the output matrix after it."""
    own = 1000 * rank
    return {
        0: {"word_embeddings.weight": numbers(own, 5, 4)},
        2: {"mlp.dense_h_to_4h.weight": numbers(own + 30, 6, 4), "input_layernorm.weight": numbers(own + 60, 8)[2:6]},
        3: {"norm.weight": numbers(80, 4)},
        4: {"final_linear.weight": torch.nn.Parameter(numbers(own + 90, 5, 4))},
    }[layer]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for rank in range(2):
        torch.save({"module": nested(shard(TESTS / f"hugging_face/glm/model_part-{rank}.safetensors"))}, FOLDER / f"glm_{rank}.pt")
        torch.save(metaseq(rank), FOLDER / f"metaseq_{rank}.pt")
        for layer in (0, 2, 3, 4):
            torch.save(neox(layer, rank), FOLDER / f"layer_{layer:02}-model_{rank:02}-model_states.pt")
    codegeex = nested(shard(TESTS / "hugging_face/codegeex/model_part-0.safetensors"))
    torch.save(codegeex, FOLDER / "codegeex.pt", _use_new_zipfile_serialization=False)
    expected: dict = {"metaseq": [], "neox": []}
    for rank in range(2):
        expected["metaseq"].append({name: [list(t.shape), t.flatten().tolist()] for name, t in metaseq(rank)["model"].items()})
        parts = {("layers.0." if layer == 2 else "") + name: t for layer in (0, 2, 3, 4) for name, t in neox(layer, rank).items()}
        expected["neox"].append({name: [list(t.shape), t.detach().flatten().tolist()] for name, t in parts.items()})
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
