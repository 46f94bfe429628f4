"""Makes crates/app/cli/tests/hugging_face/glm and codegeex: small models in the form in which `tools/published_weights.py` leaves the published ones.

    pip install torch numpy
    python tools/reference/published.py

Both are written from what was published of them, GLM-130B (Zeng et al. 2022, section 2.1; THUDM/SwissArmyTransformer, `glm130B_model.py`) and
CodeGeeX (THUDM/CodeGeeX, `codegeex_model.py`), with PyTorch's own functions, in double precision, and differentiated by PyTorch. Every weight is
random, norms and biases too. Kept are the weights in tensor-parallel shards, the inputs, the logits, the loss and the gradient of every weight.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

from tensors import save

FOLDER = pathlib.Path(__file__).parents[2] / "crates/app/cli/tests/hugging_face"
LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH, SEQUENCES = 2, 16, 4, 32, 10, 3
WIDTH = HIDDEN // HEADS
EPSILON = 1e-5

Params = dict[str, torch.Tensor]


def draw(shapes: dict[str, tuple[int, ...]]) -> Params:
    """Random numbers short enough for 16 bits, of size 0.15, and for the weights of norms about 1."""
    is_norm = lambda name: "norm" in name and name.endswith("weight")
    values = {name: torch.randn(shape) * 0.15 + (1.0 if is_norm(name) else 0.0) for name, shape in shapes.items()}
    return {name: value.bfloat16().double().requires_grad_() for name, value in values.items()}


def linear(p: Params, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def norm(p: Params, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (HIDDEN,), p[f"{name}.weight"], p[f"{name}.bias"], EPSILON)


def softmax_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Of heads `[B, S, heads, d]`, joined again to `[B, S, D]`; `mask[B, S, S]` is true where a query sees a key."""
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(WIDTH)
    scores = scores.masked_fill(~mask[:, None], -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value).flatten(2)


def shapes_of(table: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Names without an ending are linear layers or norms: a weight and a bias."""
    return {
        full: shape
        for name, shape in table.items()
        for full, shape in ([(name, shape)] if name.endswith("weight") else [(f"{name}.weight", shape), (f"{name}.bias", shape[:1])])
    }


# ---- GLM-130B

GLM_INNER = 12


def glm_shapes() -> dict[str, tuple[int, ...]]:
    table = {"transformer.word_embeddings.weight": (VOCABULARY, HIDDEN)}
    for layer in (f"transformer.layers.{number}" for number in range(LAYERS)):
        table |= {
            f"{layer}.input_layernorm": (HIDDEN,),
            f"{layer}.attention.query_key_value": (3 * HIDDEN, HIDDEN),
            f"{layer}.attention.dense": (HIDDEN, HIDDEN),
            f"{layer}.post_attention_layernorm": (HIDDEN,),
            f"{layer}.mlp.dense_h_to_4h": (2 * GLM_INNER, HIDDEN),
            f"{layer}.mlp.dense_4h_to_h": (HIDDEN, GLM_INNER),
        }
    return shapes_of(table | {"transformer.final_layernorm": (HIDDEN,)})


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """`x[B, S, heads, d]` times the cosine plus its rotated half times the sine, over all dims."""
    frequencies = 1.0 / 10_000.0 ** (torch.arange(0, WIDTH, 2).double() / WIDTH)
    angles = positions[..., None].double() * frequencies
    angles = torch.cat([angles, angles], -1)[:, :, None]
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def glm(p: Params, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    alpha = math.sqrt(2 * LAYERS)
    x = F.embedding(inputs["input_ids"], p["transformer.word_embeddings.weight"])
    for layer in (f"transformer.layers.{number}" for number in range(LAYERS)):
        u = norm(p, f"{layer}.input_layernorm", x)
        mixed = linear(p, f"{layer}.attention.query_key_value", u).unflatten(-1, (HEADS, 3 * WIDTH))
        query, key, value = mixed.chunk(3, -1)
        query, key = (rotate(y, inputs["position_ids"]) for y in (query, key))
        attended = softmax_attention(query, key, value, inputs["mask"])
        x = alpha * u + linear(p, f"{layer}.attention.dense", attended)
        w = norm(p, f"{layer}.post_attention_layernorm", x)
        x1, x2 = linear(p, f"{layer}.mlp.dense_h_to_4h", w).chunk(2, -1)
        x = alpha * w + linear(p, f"{layer}.mlp.dense_4h_to_h", x1 * F.gelu(x2))
    return F.linear(norm(p, "transformer.final_layernorm", x), p["transformer.word_embeddings.weight"])


def glm_inputs() -> dict[str, torch.Tensor]:
    """A context that sees itself and then a blank: two sequences with [MASK], whose place the blank has, and one with [gMASK]."""
    contexts, masks = [6, 4, 5], [2, 3, None]
    place = torch.arange(LENGTH)
    sees = [(place <= place[:, None]) | (place < context) for context in contexts]
    positions = [place if at is None else torch.where(place < context, place, at) for context, at in zip(contexts, masks)]
    return {"position_ids": torch.stack(positions), "mask": torch.stack(sees), "prefix_length": torch.tensor(contexts)}


def glm_shards(p: Params, shards: int) -> list[Params]:
    """As `tools/convert_tp.py` of GLM-130B cuts them: each shard has its part of both halves of the gated map."""
    parts = []
    for shard in range(shards):
        part = {}
        for name, tensor in p.items():
            if "dense_h_to_4h" in name:
                tensor = torch.cat([half.chunk(shards)[shard] for half in tensor.chunk(2)])
            elif name.endswith(("attention.dense.weight", "dense_4h_to_h.weight")):
                tensor = tensor.chunk(shards, 1)[shard]
            elif "query_key_value" in name or "word_embeddings" in name:
                tensor = tensor.chunk(shards)[shard]
            part[name] = tensor
        parts.append(part)
    return parts


# ---- CodeGeeX

CODEGEEX_INNER = 24
PREFIX = "module.language_model"
CONTEXT = 12


def codegeex_shapes() -> dict[str, tuple[int, ...]]:
    table = {
        f"{PREFIX}.embedding.word_embeddings.weight": (VOCABULARY, HIDDEN),
        f"{PREFIX}.embedding.position_embeddings.weight": (CONTEXT, HIDDEN),
        f"{PREFIX}.topQueryEmbedding.top_query_embeddings.weight": (CONTEXT, HIDDEN),
        f"{PREFIX}.transformer.final_layernorm": (HIDDEN,),
    }
    for name in [*(f"layers.{number}" for number in range(LAYERS)), "topQueryLayer"]:
        layer = f"{PREFIX}.transformer.{name}"
        table |= {f"{layer}.attention.{part}": (HIDDEN, HIDDEN) for part in ("query", "key", "value", "dense")}
        table |= {f"{layer}.{part}": (HIDDEN,) for part in ("input_layernorm", "post_attention_layernorm")}
        table |= {f"{layer}.mlp.dense_h_to_4h": (CODEGEEX_INNER, HIDDEN), f"{layer}.mlp.dense_4h_to_h": (HIDDEN, CODEGEEX_INNER)}
    return shapes_of(table)


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-1.702 * x.abs())) * torch.exp(0.851 * (x - x.abs()))


def codegeex(p: Params, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    heads = lambda x: x.unflatten(-1, (HEADS, WIDTH))
    rows = lambda name: F.embedding(inputs["position_ids"], p[f"{PREFIX}.{name}.weight"])

    def layer(name: str, x: torch.Tensor, asking: torch.Tensor | None) -> torch.Tensor:
        name = f"{PREFIX}.transformer.{name}"
        n = norm(p, f"{name}.input_layernorm", x)
        query = heads(linear(p, f"{name}.attention.query", n if asking is None else asking))
        key, value = (heads(linear(p, f"{name}.attention.{part}", n)) for part in ("key", "value"))
        x = x + linear(p, f"{name}.attention.dense", softmax_attention(query, key, value, inputs["mask"]))
        n = norm(p, f"{name}.post_attention_layernorm", x)
        return x + linear(p, f"{name}.mlp.dense_4h_to_h", fast_gelu(linear(p, f"{name}.mlp.dense_h_to_4h", n)))

    table = p[f"{PREFIX}.embedding.word_embeddings.weight"]
    x = F.embedding(inputs["input_ids"], table) + rows("embedding.position_embeddings")
    for number in range(LAYERS):
        x = layer(f"layers.{number}", x, None)
    x = norm(p, f"{PREFIX}.transformer.final_layernorm", x)
    x = layer("topQueryLayer", x, rows("topQueryEmbedding.top_query_embeddings"))
    return F.linear(x, table)


def codegeex_inputs() -> dict[str, torch.Tensor]:
    """Documents that do not see each other and count their own positions."""
    documents = torch.tensor([[0] * 10, [0] * 4 + [1] * 6, [0, 1, 1, 1, 2, 2, 2, 2, 2, 2]])
    place = torch.arange(LENGTH)
    same = documents[:, :, None] == documents[:, None]
    first = same.int().argmax(-1)
    return {"position_ids": place - first, "mask": same & (place <= place[:, None]), "document_ids": documents}


def make(name: str, architecture: str, inner: int, forward, shapes, inputs, shards) -> None:
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    p = draw(shapes)
    tokens = torch.randint(2, VOCABULARY, (SEQUENCES, LENGTH + 1))
    labels = tokens[:, 1:].clone()
    labels[0, 7:], labels[2, :3] = -100, -100
    inputs = {"input_ids": tokens[:, :-1], "labels": labels} | inputs
    logits = forward(p, inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    loss.backward()
    config = {
        "architectures": [architecture],
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "intermediate_size": inner,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    data = {key: value.tolist() for key, value in inputs.items() if key != "mask"}
    (folder / "tokens.json").write_text(json.dumps(data) + "\n")
    for number, part in enumerate(shards(p)):
        save(folder / f"model_part-{number}.safetensors", {key: value.bfloat16() for key, value in part.items()})
    save(folder / "gradients.safetensors", {key: value.grad.float() for key, value in p.items()})
    save(folder / "expected.safetensors", {"logits": logits.detach().float(), "loss": loss.detach().float().reshape(1)})
    print(name, f"loss {loss.item():.4f}")


def main() -> None:
    torch.manual_seed(20_220_804)
    make("glm", "GLM-130B", GLM_INNER, glm, glm_shapes(), glm_inputs(), lambda p: glm_shards(p, 2))
    make("codegeex", "CodeGeeX-13B", CODEGEEX_INNER, codegeex, codegeex_shapes(), codegeex_inputs(), lambda p: [p])


if __name__ == "__main__":
    main()
