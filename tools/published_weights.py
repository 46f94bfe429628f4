"""Converts weights that were published as pickled files to safetensors, under their published names, for `pleach import`.

    pip install torch safetensors numpy
    python tools/published_weights.py glm 49300/mp_rank_*_model_states.pt --heads 96 --out GLM
    python tools/published_weights.py codegeex codegeex_13b.pt --heads 40 --out CODEGEEX
    python tools/published_weights.py metaseq reshard-model_part-*.pt --heads 96 --out OPT

Files are given in the order of their tensor-parallel ranks. Each becomes one `model_part-N.safetensors`, one after the other; nothing is
joined, cut or turned here: pleach does that as it reads (crates/interchange/src/names.rs). Files of metaseq that are also sharded over data
parallelism go through its own `reshard_fsdp.py --unflatten-weights` before. Pickled files run no code: PyTorch reads them with `weights_only`.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

# Of each format: the class that pleach knows it by, and what a file holds its weights under.
FORMATS = {"glm": ("GLM-130B", "module"), "codegeex": ("CodeGeeX-13B", None), "metaseq": ("metaseq", "model")}
# What tells sizes: the token table, the first map of the feed-forward block, the position table.
TABLES = ("word_embeddings.weight", "embed_tokens.weight")
UPS = ("layers.0.mlp.dense_h_to_4h.weight", "layers.0.fc1.weight")
POSITIONS = ("position_embeddings.weight", "embed_positions.weight")

Tensors = dict[str, torch.Tensor]


def flat(value: object, name: str = "") -> Tensors:
    """The tensors of nested dictionaries, by their keys with dots between."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    if not isinstance(value, dict):
        return {}
    tensors: Tensors = {}
    for key, inner in value.items():
        tensors |= flat(inner, f"{name}.{key}" if name else key)
    return tensors


def read(path: pathlib.Path, under: str | None) -> Tensors:
    with torch.serialization.safe_globals([argparse.Namespace]):
        file = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return flat(file[under] if under else file)


def size(tensors: Tensors, names: tuple[str, ...], dim: int) -> int | None:
    """Of the tensor whose name ends in one of `names`."""
    found = [tensor for name, tensor in tensors.items() if name.endswith(names)]
    return found[0].shape[dim] if found else None


def config(kind: str, tensors: Tensors, shards: int, heads: int, context: int) -> dict:
    """What `config.json` says: sizes of the whole model, as one shard tells them."""
    layers = {name.split("layers.")[1].split(".")[0] for name in tensors if "layers." in name}
    halves = 2 if kind == "glm" else 1
    unread = 2 if kind == "metaseq" else 0
    positions = size(tensors, POSITIONS, 0)
    return {
        "architectures": [FORMATS[kind][0]],
        "num_hidden_layers": len(layers),
        "hidden_size": size(tensors, TABLES, 1),
        "num_attention_heads": heads,
        "intermediate_size": size(tensors, UPS, 0) * shards // halves,
        "vocab_size": size(tensors, TABLES, 0) * shards,
        "max_position_embeddings": context if positions is None else positions - unread,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=FORMATS)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--heads", type=int, required=True, help="attention heads, which no file tells")
    parser.add_argument("--context", type=int, default=2048, help="longest sequence, where there is no table of positions")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(arguments.files):
        tensors = read(path, FORMATS[arguments.kind][1])
        if number == 0:
            text = config(arguments.kind, tensors, len(arguments.files), arguments.heads, arguments.context)
            (arguments.out / "config.json").write_text(json.dumps(text, indent=2) + "\n")
        # Views of one storage are written apart.
        tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        save_file(tensors, arguments.out / f"model_part-{number}.safetensors")
        print(f"{path}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
