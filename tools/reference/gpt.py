"""Makes the vectors of crates/proof/prove/tests/pytorch: small GPTs trained for ten or twenty steps by PyTorch in double precision.

    pip install torch numpy
    python tools/reference/gpt.py [NAME ...]

and transformers for `gpt_oss`, which is that library's model (`gpt_oss.py`).

Each run file there, or those of these names, is trained once in double and once in single precision; kept are the initial weights, the text, the
gradients of the first step, the loss and the norm of every step and the last weights. The model is written from its
description with PyTorch's own functions and differentiated by PyTorch; parameters bear pleach's names.
"""

import inspect
import math
import pathlib
import sys
import tomllib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.optim import _muon

from tensors import save, single

FOLDER = pathlib.Path(__file__).parents[2] / "crates/proof/prove/tests/pytorch"
VOCABULARY = 31
IGNORED = -100

Params = dict[str, torch.Tensor]


def initial_weights(model: dict) -> Params:
    """Random values for every parameter, short enough for 16 bits; norms and biases too, so that each one counts."""
    hidden, ffn = model["hidden"], model["ffn_hidden"]
    query = model["num_heads"] * model["head_dim"]
    key = model["num_kv_heads"] * model["head_dim"]
    params: Params = {}

    def draw(name: str, *shape: int, mean: float = 0.0, std: float = 0.15) -> None:
        params[name] = (torch.randn(*shape) * std + mean).bfloat16().float()

    def linear(name: str, outputs: int, inputs: int) -> None:
        draw(f"{name}.weight", outputs, inputs)
        if model["biases"]:
            draw(f"{name}.bias", outputs, std=0.05)

    def norm(name: str) -> None:
        draw(f"{name}.weight", hidden, mean=1.0, std=0.1)
        if model["norm"] == "layer":
            draw(f"{name}.bias", hidden, std=0.05)

    def layer(name: str) -> None:
        attention, feed_forward = f"{name}.attention", f"{name}.ffn"
        norm(f"{attention}_norm")
        for part, outputs, inputs in [("query", query, hidden), ("key", key, hidden), ("value", key, hidden)]:
            linear(f"{attention}.{part}", outputs, inputs)
        linear(f"{attention}.output", hidden, query)
        if model["qk_norm"]:
            draw(f"{attention}.query_norm.weight", model["head_dim"], mean=1.0, std=0.1)
            draw(f"{attention}.key_norm.weight", model["head_dim"], mean=1.0, std=0.1)
        norm(f"{feed_forward}_norm")
        if is_gated(model):
            linear(f"{feed_forward}.gate", ffn, hidden)
        linear(f"{feed_forward}.up", ffn, hidden)
        linear(f"{feed_forward}.down", hidden, ffn)

    draw("embedding.token.weight", VOCABULARY, hidden)
    if model["position"] == "learned":
        draw("embedding.position.weight", model["context"], hidden)
    if model.get("embedding_norm"):
        norm("embedding.norm")
    for number in range(model["num_layers"]):
        layer(f"layers.{number}")
    norm("head.norm")
    if model.get("top_query"):
        draw("top_query.position.weight", model["context"], hidden)
        layer("top_query")
    if not model["tied_embeddings"]:
        draw("head.output.weight", VOCABULARY, hidden)
    if "lora" in model:
        rank = model["lora"]["rank"]
        for name in [name for name in params if name.startswith("layers.") and name.split(".")[3] in model["lora"]["targets"]]:
            if name.endswith(".weight"):
                outputs, inputs = params[name].shape
                draw(name.replace("weight", "lora_a"), rank, inputs)
                draw(name.replace("weight", "lora_b"), outputs, rank, std=0.05)
    return params


def is_gated(model: dict) -> bool:
    return model["activation"] in ("swiglu", "geglu")


def text(train: dict) -> dict[str, torch.Tensor]:
    """Tokens `[steps, batch, S]` that mostly follow from the one before, in documents, with labels that do not all count."""
    shape = (train["steps"], train["global_batch"], train["sequence_length"] + 1)
    tokens = torch.randint(VOCABULARY, shape)
    is_fresh = torch.rand(shape) < 0.25
    for place in range(1, shape[2]):
        follows = (tokens[..., place - 1] * 7 + 3) % VOCABULARY
        tokens[..., place] = torch.where(is_fresh[..., place], tokens[..., place], follows)
    labels = tokens[..., 1:].clone()
    # Sequences have 0 to S labels that count, so that ranks and microbatches have unequal numbers.
    counted = torch.randint(shape[2], shape[:2])
    counted[0, 0] = 0
    labels[torch.arange(shape[2] - 1) >= counted[..., None]] = IGNORED
    # A token begins a document now and then; the first one always does.
    place = torch.arange(shape[2] - 1).expand_as(labels)
    begins = (torch.rand(labels.shape) < 0.12) | (place == 0)
    first = torch.where(begins, place, 0).cummax(-1).values
    return {"tokens": tokens[..., :-1], "labels": labels, "first_visible": first, "positions": place - first}


def rotate(x: torch.Tensor, positions: torch.Tensor, model: dict) -> torch.Tensor:
    """Turns the first dims of each head `x[B, heads, S, d]`: pairs are complex numbers times `exp(i * angle)`."""
    turned = round(model["rotary_fraction"] * model["head_dim"])
    pairs = turned // 2
    exponents = torch.arange(pairs, dtype=torch.float64) / pairs
    angles = positions[:, None, :, None].double() * model["rotary_base"] ** -exponents
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    part, rest = x[..., :turned], x[..., turned:]
    if model["rotary_pairing"] == "half":
        a, b = part[..., :pairs], part[..., pairs:]
        part = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = part[..., 0::2], part[..., 1::2]
        part = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([part, rest], -1)


def norm(x: torch.Tensor, params: Params, name: str, model: dict) -> torch.Tensor:
    weight, epsilon = params[f"{name}.weight"], single(model["norm_epsilon"])
    if model["norm"] == "layer":
        return F.layer_norm(x, weight.shape, weight, params[f"{name}.bias"], epsilon)
    return F.rms_norm(x, weight.shape, weight, epsilon)


def linear(x: torch.Tensor, params: Params, name: str, model: dict) -> torch.Tensor:
    y = F.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))
    if f"{name}.lora_a" in params:
        # Hu et al. 2021, equation 3, with the scale alpha / r of section 4.1.
        scale = single(model["lora"]["alpha"] / model["lora"]["rank"])
        y = y + scale * F.linear(F.linear(x, params[f"{name}.lora_a"]), params[f"{name}.lora_b"])
    return y


def attention(x: torch.Tensor, params: Params, name: str, model: dict, batch: Params) -> torch.Tensor:
    sequences, length, _ = x.shape
    split = lambda y: y.view(sequences, length, -1, model["head_dim"]).transpose(1, 2)
    # CodeGeeX's last layer asks with rows of a table instead of the stream.
    asking = F.embedding(batch["positions"], params["top_query.position.weight"]) if name.startswith("top_query") else x
    inputs = {"query": asking, "key": x, "value": x}
    query, key, value = (split(linear(y, params, f"{name}.{part}", model)) for part, y in inputs.items())
    if model["qk_norm"]:
        shape, epsilon = (model["head_dim"],), single(model["norm_epsilon"])
        query = F.rms_norm(query, shape, params[f"{name}.query_norm.weight"], epsilon)
        key = F.rms_norm(key, shape, params[f"{name}.key_norm.weight"], epsilon)
    if model["position"] == "rotary":
        query, key = (rotate(y, batch["positions"], model) for y in (query, key))
    place = torch.arange(length)
    mask = (place <= place[:, None]) & (place >= batch["first_visible"][..., None])
    bias = torch.zeros(mask[:, None].shape, dtype=x.dtype).masked_fill(~mask[:, None], -math.inf)
    if model["position"] == "alibi":
        slopes = torch.tensor(alibi_slopes(model["num_heads"]), dtype=x.dtype)
        bias = bias + slopes[:, None, None] * place
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, enable_gqa=True)
    return linear(out.transpose(1, 2).reshape(sequences, length, -1), params, f"{name}.output", model)


def alibi_slopes(heads: int) -> list[float]:
    """As in the code of the paper: a geometric series, and for other numbers than powers of two every second one of a longer series."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][: heads - below]


def feed_forward(x: torch.Tensor, params: Params, name: str, model: dict) -> torch.Tensor:
    up = linear(x, params, f"{name}.up", model)
    match model["activation"]:
        case "gelu_tanh":
            y = F.gelu(up, approximate="tanh")
        case "gelu_erf":
            y = F.gelu(up)
        case "gelu_sigmoid":
            y = up * torch.sigmoid(1.702 * up)
        case "relu":
            y = F.relu(up)
        case "swiglu":
            y = F.silu(linear(x, params, f"{name}.gate", model)) * up
        case "geglu":
            y = F.gelu(linear(x, params, f"{name}.gate", model)) * up
    return linear(y, params, f"{name}.down", model)


def layer_output(x: torch.Tensor, params: Params, name: str, model: dict, batch: Params) -> torch.Tensor:
    attend = lambda y: attention(y, params, f"{name}.attention", model, batch)
    feed = lambda y: feed_forward(y, params, f"{name}.ffn", model)
    first, second = (lambda y, part=part: norm(y, params, f"{name}.{part}_norm", model) for part in ("attention", "ffn"))
    match model.get("blocks", "sequential"):
        case "sequential":
            x = x + attend(first(x))
            return x + feed(second(x))
        case "parallel":
            return x + attend(first(x)) + feed(second(x))
        case "deepnorm":
            # GLM-130B: the stream goes through the norms, and is weighted when blocks are added.
            alpha = single(model["deepnorm_alpha"])
            u = first(x)
            v = second(alpha * u + attend(u))
            return alpha * v + feed(v)


def logits(params: Params, model: dict, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """`[B, S, V]`."""
    x = F.embedding(batch["tokens"], params["embedding.token.weight"])
    if model["position"] == "learned":
        x = x + F.embedding(batch["positions"], params["embedding.position.weight"])
    if model.get("embedding_norm"):
        x = norm(x, params, "embedding.norm", model)
    for layer in range(model["num_layers"]):
        x = layer_output(x, params, f"layers.{layer}", model, batch)
    x = norm(x, params, "head.norm", model)
    if model.get("top_query"):
        x = layer_output(x, params, "top_query", model, batch)
    output = "embedding.token.weight" if model["tied_embeddings"] else "head.output.weight"
    return F.linear(x, params[output])


Logits = Callable[[Params, dict, dict[str, torch.Tensor]], torch.Tensor]


def losses_of(
    params: Params, model: dict, batch: dict[str, torch.Tensor], logits: Logits
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy and mean z-loss over the labels of the whole batch that count."""
    scores, labels = logits(params, model, batch).flatten(0, 1), batch["labels"].flatten()
    squares = torch.logsumexp(scores, dim=-1)[labels != IGNORED] ** 2
    return F.cross_entropy(scores, labels, ignore_index=IGNORED), single(model.get("z_loss", 0.0)) * squares.mean()


def learning_rate(train: dict, step: int) -> float:
    """Linear warm-up to the peak, then half a cosine that would reach the minimum after the last step."""
    peak, minimum = single(train["learning_rate"]), single(train["min_learning_rate"])
    if step < train["warmup_steps"]:
        return single(peak * (step + 1) / train["warmup_steps"])
    progress = (step - train["warmup_steps"]) / (train["steps"] - train["warmup_steps"])
    return single(minimum + (peak - minimum) * 0.5 * (1 + math.cos(math.pi * progress)))


def optimizers_of(params: Params, train: dict) -> list[torch.optim.Optimizer]:
    """AdamW, with decay for matrices and none for norms and biases; or AdamW and Muon, which has the matrices of layers."""
    by_muon = [p for name, p in params.items() if train.get("optimizer") == "muon" and is_map(name, p)]
    others = [p for p in params.values() if not any(p is other for other in by_muon)]
    decay = single(train["weight_decay"])
    groups = [
        {"params": [p for p in others if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ]
    betas = (single(train["beta1"]), single(train["beta2"]))
    optimizers = [torch.optim.AdamW(groups, betas=betas, eps=single(train["epsilon"]))]
    if by_muon:
        scale = {"adamw": "match_rms_adamw", "shape": "original"}[train["muon_scale"]]
        momentum = single(train["muon_momentum"])
        optimizers.append(torch.optim.Muon(by_muon, momentum=momentum, weight_decay=decay, adjust_lr_fn=scale))
    return optimizers


def is_map(name: str, param: torch.Tensor) -> bool:
    """Whether a parameter is a matrix of a layer."""
    return name.startswith("layers.") and param.dim() == 2


def keep_precision_of_muon() -> None:
    """PyTorch's Muon rounds matrices to bf16 before it iterates; here it iterates in the type of the gradient."""
    name = "_zeropower_via_newtonschulz"
    source = inspect.getsource(getattr(_muon, name))
    assert source.count("torch.bfloat16") == 1
    exec(source.replace("torch.bfloat16", "grad.dtype"), vars(_muon))


def run(config: dict, start: Params, data: dict[str, torch.Tensor], dtype: torch.dtype, logits: Logits) -> dict:
    """Trains in `dtype`; returns losses and norms per step, first gradients and last weights."""
    model, train = config["model"], config["train"]
    params = {name: torch.nn.Parameter(values.to(dtype, copy=True)) for name, values in start.items()}
    # Of a model with adapters, these alone are trained.
    trained = {name: p for name, p in params.items() if "lora" not in model or ".lora_" in name}
    for name, param in params.items():
        param.requires_grad_(name in trained)
    optimizers = optimizers_of(trained, train)
    losses, norms, gradients = [], [], {}
    for step in range(train["steps"]):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(train, step)
            optimizer.zero_grad()
        value, z_loss = losses_of(params, model, {name: tensor[step] for name, tensor in data.items()}, logits)
        (value + z_loss).backward()
        if step == 0:
            gradients = {name: param.grad.clone() for name, param in trained.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), train["clip_norm"]).double())
        losses.append(value.detach().double())
        for optimizer in optimizers:
            optimizer.step()
    weights = {name: param.detach() for name, param in params.items()}
    return {"losses": torch.stack(losses), "norms": torch.stack(norms), "gradients": gradients, "weights": weights}


def results(config: dict) -> tuple[Params, dict[str, torch.Tensor], dict, dict]:
    """Initial weights, text, and the runs in double and in single precision."""
    model = config["model"]
    if "experts" not in model:
        torch.manual_seed(20_240_229)
        start, data = initial_weights(model), text(config["train"])
        double, float_ = (run(config, start, data, dtype, logits) for dtype in (torch.float64, torch.float32))
        return start, data, double, float_
    import gpt_oss

    for attempt in range(100):
        torch.manual_seed(20_240_229 + attempt)
        start = gpt_oss.initial_weights(model, VOCABULARY)
        data = gpt_oss.in_one_document(text(config["train"]))
        references = [gpt_oss.Reference(model, VOCABULARY, dtype) for dtype in (torch.float64, torch.float32)]
        double, float_ = (
            run(config, start, data, dtype, reference.logits)
            for reference, dtype in zip(references, (torch.float64, torch.float32))
        )
        found = references[0]
        print("attempt", attempt, "nearest", min(found.nearest), "clamped", found.clamped, "loads", found.loads.tolist())
        if min(found.nearest) > gpt_oss.NEAREST:
            return start, data, double, float_
    raise SystemExit("100 draws have choices or clamped values that rounding may change")


def main() -> None:
    keep_precision_of_muon()
    total = 0
    for path in sorted(FOLDER.glob("*.toml")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        config = tomllib.loads(path.read_text())
        start, data, double, float_ = results(config)
        tensors = {name: values.to(torch.int8) for name, values in data.items()}
        tensors |= {f"initial/{name}": values.bfloat16() for name, values in start.items()}
        tensors |= {f"gradient/{name}": values.float() for name, values in double["gradients"].items()}
        tensors |= {f"final/{name}": values.float() for name, values in double["weights"].items()}
        tensors |= {"losses": double["losses"], "norms": double["norms"], "losses_in_float": float_["losses"]}
        print([round(x, 3) for x in double["losses"].tolist()], [round(x, 2) for x in double["norms"].tolist()])
        for kind in ("gradients", "weights"):
            far = {
                name: ((float_[kind][name].double() - exact).norm() / exact.norm()).item()
                for name, exact in double[kind].items()
            }
            print(f"  {kind} of PyTorch in single precision:", sorted(far.items(), key=lambda x: -x[1])[:3])
        save(path.with_suffix(".safetensors"), tensors)
        total += path.with_suffix(".safetensors").stat().st_size
    print(f"{total} bytes")


if __name__ == "__main__":
    main()
