"""Makes the vectors of crates/kernels/cpu/tests/vectors: what PyTorch computes for each operation, in double precision.

    pip install torch numpy
    python tools/reference/ops.py

Inputs are drawn in single precision, so that both sides start from the same numbers; results and gradients are those of
PyTorch's own functions and of its automatic differentiation on the same inputs in double precision.
"""

import math
import pathlib

import torch
import torch.nn.functional as F

from tensors import save, single

FOLDER = pathlib.Path(__file__).parents[2] / "crates/kernels/cpu/tests/vectors"


class Case:
    """The tensors of one case: inputs as they are drawn, results as they are computed."""

    def __init__(self, name: str, into: dict[str, torch.Tensor]):
        self.name, self.into, self.variables = name, into, {}

    def draw(self, name: str, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """A normal input, kept in single precision; returned in double, ready to be differentiated by."""
        return self.give(name, torch.randn(*shape) * scale)

    def give(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """As `draw`, of given values."""
        single = values.float()
        self.into[f"{self.name}/{name}"] = single
        self.variables[name] = single.double().requires_grad_()
        return self.variables[name]

    def keep(self, name: str, values: torch.Tensor) -> None:
        """A result, or integers."""
        values = values.detach()
        self.into[f"{self.name}/{name}"] = values if values.is_floating_point() else values.int()

    def backward(self, output: torch.Tensor, of: list[str]) -> None:
        """Draws the gradient `dy` of `output` and keeps `dx` for every `x` in `of`."""
        dy = self.draw("dy", *output.shape)
        for name, gradient in zip(of, torch.autograd.grad(output, [self.variables[x] for x in of], dy.detach())):
            self.keep(f"d{name}", gradient)


def linear(into):
    for name, tokens, inputs, outputs in [("small", 5, 19, 13), ("wide", 9, 70, 21)]:
        case = Case(name, into)
        x, weight = case.draw("x", tokens, inputs), case.draw("weight", outputs, inputs)
        y = F.linear(x, weight, case.draw("bias", outputs))
        case.keep("y", y)
        case.backward(y, ["x", "weight", "bias"])


def norm(into):
    for name, rows, width in [("narrow", 4, 5), ("odd", 3, 37), ("wide", 3, 100)]:
        for kind in ["layer", "rms"]:
            case = Case(f"{kind}_{name}", into)
            x = case.give("x", torch.randn(rows, width) * 2 + 0.5)
            weight = case.give("weight", torch.randn(width) * 0.2 + 1)
            if kind == "layer":
                y = F.layer_norm(x, (width,), weight, case.draw("bias", width), 1e-5)
            else:
                y = F.rms_norm(x, (width,), weight, 1e-5)
            case.keep("y", y)
            case.backward(y, ["x", "weight"] + (["bias"] if kind == "layer" else []))


def activation(into):
    functions = {
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "gelu_erf": F.gelu,
        "relu": F.relu,
        "swiglu": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
        "geglu": lambda x: F.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    }
    for name, function in functions.items():
        case = Case(name, into)
        # The usual range and both tails, where the functions saturate.
        sweep = torch.cat([torch.linspace(-12, 12, 46), torch.tensor([-0.001, 0.001])])
        y = function(case.give("x", torch.stack([torch.randn(48) * 1.5, sweep[torch.randperm(48)]])))
        case.keep("y", y)
        case.backward(y, ["x"])


def rotary(into):
    """Pairs of channels are complex numbers, multiplied by `exp(i * position * base^(-2k/R))`."""
    heads, width = 2, 12
    positions = torch.tensor([0, 1, 2, 3, 17, 100, 511])
    for pairing in ["half", "interleaved"]:
        for turned, base in [(12, 10_000.0), (6, 500_000.0)]:
            case = Case(f"{pairing}_{turned}", into)
            x = case.draw("x", len(positions), heads * width)
            pairs = turned // 2
            frequencies = torch.tensor(base).double() ** (-torch.arange(pairs).double() / pairs)
            angles = positions[:, None, None].double() * frequencies
            turn = torch.polar(torch.ones_like(angles), angles)
            head = x.view(len(positions), heads, width)
            part, rest = head[..., :turned], head[..., turned:]
            if pairing == "half":
                y = torch.complex(part[..., :pairs], part[..., pairs:]) * turn
                y = torch.cat([y.real, y.imag], -1)
            else:
                y = torch.view_as_complex(part.reshape(*part.shape[:-1], pairs, 2)) * turn
                y = torch.view_as_real(y).flatten(-2)
            y = torch.cat([y, rest], -1).flatten(1)
            case.keep("base", torch.tensor([base]))
            case.keep("positions", positions)
            case.keep("y", y)
            case.backward(y, ["x"])


def attention(into):
    """Scaled dot-product attention, and the same from its definition; intervals of visible keys as masks."""
    for name, sequences, length, heads, kv_heads, width in [
        ("causal", 2, 10, 4, 2, 6),
        ("documents", 1, 23, 4, 2, 6),
        ("prefix", 1, 12, 3, 3, 5),
        ("multi_query", 1, 34, 2, 1, 8),
    ]:
        case = Case(name, into)
        tokens = sequences * length
        q = case.draw("q", tokens, heads * width)
        k, v = (case.draw(x, tokens, kv_heads * width) for x in "kv")
        place = torch.arange(length)
        starts = {"documents": torch.tensor([0, 7, 8, 16])}.get(name, torch.tensor([0]))
        first = torch.stack([starts[starts <= p].max() for p in place])
        last = torch.maximum(place + 1, torch.tensor(5)) if name == "prefix" else place + 1
        case.keep("visible", torch.stack([first, last], -1).repeat(sequences, 1))
        case.keep("sizes", torch.tensor([sequences, length, heads, kv_heads, width]))

        mask = (place >= first[:, None]) & (place < last[:, None])
        split = lambda x: x.view(sequences, length, -1, width).transpose(1, 2)
        is_causal = name in ["causal", "multi_query"]
        how = {"is_causal": True} if is_causal else {"attn_mask": mask}
        scale = single(1 / math.sqrt(width))
        out = F.scaled_dot_product_attention(split(q), split(k), split(v), **how, scale=scale, enable_gqa=True)
        repeated = [split(x).repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
        scores = split(q) @ repeated[0].mT * scale
        scores = scores.masked_fill(~mask, -math.inf)
        assert torch.allclose(out, scores.softmax(-1) @ repeated[1], rtol=0, atol=1e-13)
        case.keep("log_sum_exp", scores.logsumexp(-1).transpose(1, 2).reshape(tokens, heads))
        out = out.transpose(1, 2).reshape(tokens, heads * width)
        case.keep("y", out)
        case.backward(out, ["q", "k", "v"])


def cross_entropy(into):
    for name, vocabulary, scale in [("small", 7, 2.0), ("wide", 61, 5.0)]:
        case = Case(name, into)
        labels = torch.tensor([0, vocabulary - 1, -100, 3, 3, -100, 5, 1])
        logits = case.draw("logits", len(labels), vocabulary, scale=scale)
        case.keep("labels", labels)
        case.keep("loss", F.cross_entropy(logits, labels, reduction="none"))
        mean = F.cross_entropy(logits, labels)
        case.keep("mean", mean.view(1))
        case.keep("dlogits", torch.autograd.grad(mean, logits)[0])


def embedding(into):
    case = Case("table", into)
    tokens = torch.tensor([3, 0, 9, 3, 7, 11, 3, 9, 10, 3])
    case.keep("tokens", tokens)
    y = F.embedding(tokens, case.draw("weight", 12, 19))
    case.keep("y", y)
    case.backward(y, ["weight"])


def adamw(into):
    for name, decay in [("decayed", 0.1), ("plain", 0.0)]:
        case = Case(name, into)
        param = torch.nn.Parameter(case.draw("param", 37).detach())
        rates = [1e-3, 5e-3, 1e-2, 7e-3, 3e-3, 1e-4]
        # Gradients of very different sizes, down to where the offset of the denominator counts.
        sizes = 10.0 ** -torch.linspace(0, 9, 37)
        gradients = case.give("gradients", torch.randn(len(rates), 37) * sizes)
        betas = (single(0.9), single(0.95))
        optimizer = torch.optim.AdamW([param], betas=betas, eps=single(1e-8), weight_decay=single(decay))
        history = []
        for rate, gradient in zip(rates, gradients.detach()):
            optimizer.param_groups[0]["lr"] = single(rate)
            param.grad = gradient.clone()
            optimizer.step()
            history.append(param.detach().clone())
        case.keep("rates", torch.tensor(rates))
        case.keep("decay", torch.tensor([decay]))
        case.keep("history", torch.stack(history))
        case.keep("first_moment", optimizer.state[param]["exp_avg"])
        case.keep("second_moment", optimizer.state[param]["exp_avg_sq"])


def clip(into):
    for name, limit in [("above", 1.0), ("below", 100.0)]:
        case = Case(name, into)
        params = [torch.nn.Parameter(torch.zeros(n).double()) for n in (40, 3, 17)]
        for index, param in enumerate(params):
            param.grad = case.draw(f"gradient_{index}", len(param), scale=10.0 ** (1 - index)).detach().clone()
        case.keep("limit", torch.tensor([limit]))
        case.keep("norm", torch.nn.utils.clip_grad_norm_(params, limit).view(1))
        for index, param in enumerate(params):
            case.keep(f"clipped_{index}", param.grad)


def main() -> None:
    for make in [linear, norm, activation, rotary, attention, cross_entropy, embedding, adamw, clip]:
        torch.manual_seed(20_240_229)
        tensors = {}
        make(tensors)
        save(FOLDER / f"{make.__name__}.safetensors", tensors)


if __name__ == "__main__":
    main()
