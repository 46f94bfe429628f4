"""Converts weights that were published as pickled files to safetensors, under their published names, for `pleach import`.

    python tools/published_weights.py glm 49300/mp_rank_*_model_states.pt --heads 96 --out GLM
    python tools/published_weights.py codegeex codegeex_13b.pt --heads 40 --out CODEGEEX
    python tools/published_weights.py metaseq reshard-model_part-*.pt --heads 96 --out OPT
    python tools/published_weights.py neox global_step150000/layer_*.pt --heads 64 --out NEOX

Files are given in the order of their tensor-parallel ranks. Each becomes one `model_part-N.safetensors`, one after the other; GPT-NeoX has a
file per rank and layer, whose names number them. Nothing is cut, turned or added here: pleach does that as it reads
(crates/training/interchange/src/names.rs). Files of metaseq that are also sharded over data parallelism go through its own
`reshard_fsdp.py --unflatten-weights` before. Python's standard library is enough, and pickled files run no code (tools/pickled_tensors.py).
"""

import argparse
import json
import math
import pathlib
import re
import struct

import pickled_tensors
from pickled_tensors import Tensor

# Of each format: the class that pleach knows it by, and what a file holds its weights under.
FORMATS = {
    "glm": ("GLM-130B", "module"),
    "codegeex": ("CodeGeeX-13B", None),
    "metaseq": ("metaseq", "model"),
    "neox": ("GPT-NeoX-20B", None),
}
# Tensors that have the sizes: the token table, the first map of the feed-forward block, the position table.
TABLES = ("word_embeddings.weight", "embed_tokens.weight")
UPS = ("layers.0.mlp.dense_h_to_4h.weight", "layers.0.fc1.weight")
POSITIONS = ("position_embeddings.weight", "embed_positions.weight")

Tensors = dict[str, Tensor]


def flat(value: object, name: str = "") -> Tensors:
    """The tensors of nested dictionaries, by their keys with dots between."""
    if isinstance(value, Tensor):
        return {name: value}
    if not isinstance(value, dict):
        return {}
    tensors: Tensors = {}
    for key, inner in value.items():
        tensors |= flat(inner, f"{name}.{key}" if name else key)
    return tensors


def read(path: pathlib.Path, under: str | None) -> Tensors:
    file = pickled_tensors.read(path)
    return flat(file[under] if under else file)


def save(path: pathlib.Path, tensors: Tensors) -> None:
    """Writes a safetensors file: the length of the header, the header in JSON, the elements. One tensor is in memory at a time."""
    order = sorted(tensors, key=lambda name: (-tensors[name].storage.width, name))
    header, offset = {}, 0
    for name in order:
        tensor = tensors[name]
        end = offset + math.prod(tensor.shape) * tensor.storage.width
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name].bytes())


def shards(kind: str, files: list[pathlib.Path]) -> list[list[tuple[pathlib.Path, str]]]:
    """The files of each shard, and what is put in front of the names in each."""
    if kind != "neox":
        return [[(path, "")] for path in files]
    by_rank: dict[int, list[tuple[pathlib.Path, str]]] = {}
    numbers = {path: tuple(map(int, re.match(r"layer_(\d+)-model_(\d+)", path.name).groups())) for path in files}
    last = max(layer for layer, _ in numbers.values())
    for path, (layer, rank) in sorted(numbers.items(), key=lambda item: item[1]):
        # The first file has the token table; the last two have the norm and the output matrix.
        is_layer = 2 <= layer <= last - 2
        by_rank.setdefault(rank, []).append((path, f"layers.{layer - 2}." if is_layer else ""))
    return [by_rank[rank] for rank in sorted(by_rank)]


def size(tensors: Tensors, names: tuple[str, ...], dim: int) -> int:
    """Of the tensor whose name ends in one of `names`."""
    found = [tensor for name, tensor in tensors.items() if name.endswith(names)]
    if not found:
        raise SystemExit(f"the first shard must have a tensor whose name ends in {' or '.join(names)}; it has {len(tensors)} others")
    return found[0].shape[dim]


def config(kind: str, tensors: Tensors, shards: int, heads: int, context: int) -> dict:
    """`config.json`: sizes of the whole model, derived from one shard."""
    layers = {name.split("layers.")[1].split(".")[0] for name in tensors if "layers." in name}
    halves = 2 if kind == "glm" else 1
    unread = 2 if kind == "metaseq" else 0
    has_positions = any(name.endswith(POSITIONS) for name in tensors)
    return {
        "architectures": [FORMATS[kind][0]],
        "num_hidden_layers": len(layers),
        "hidden_size": size(tensors, TABLES, 1),
        "num_attention_heads": heads,
        "intermediate_size": size(tensors, UPS, 0) * shards // halves,
        "vocab_size": size(tensors, TABLES, 0) * shards,
        "max_position_embeddings": size(tensors, POSITIONS, 0) - unread if has_positions else context,
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
    parts = shards(arguments.kind, arguments.files)
    for number, files in enumerate(parts):
        tensors: Tensors = {}
        for path, before in files:
            read_here = read(path, FORMATS[arguments.kind][1])
            tensors |= {before + name: tensor for name, tensor in read_here.items()}
        if number == 0:
            text = config(arguments.kind, tensors, len(parts), arguments.heads, arguments.context)
            (arguments.out / "config.json").write_text(json.dumps(text, indent=2) + "\n")
        save(arguments.out / f"model_part-{number}.safetensors", tensors)
        print(f"model_part-{number}.safetensors: {len(tensors)} tensors of {', '.join(path.name for path, _ in files)}")


if __name__ == "__main__":
    main()
