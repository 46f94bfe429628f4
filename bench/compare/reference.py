"""The same training step in PyTorch: one step per line of standard input, its seconds to standard output.

    python reference.py RUN.toml --threads 2 [--microbatch 1] [--compiled] [--precision bf16] [--device cuda]

The model is written with PyTorch's own fast paths: fused projection of queries, keys and values, scaled-dot-product attention, fused
AdamW, gradients set to none. With --microbatch N a step runs forward and backward on N sequences at a time and accumulates their
gradients, as pleach does; by default on the whole batch at once. The first line that is printed says how many bytes were resident before the model was built; at the end of
the input the last line says the most that were.
"""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.ffn_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequences, length, hidden = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(sequences, length, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(sequences, length, hidden))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, model: dict) -> None:
        super().__init__()
        hidden = model["hidden"]
        self.tokens = nn.Embedding(model["vocabulary"], hidden)
        self.positions = nn.Embedding(model["context"], hidden)
        self.blocks = nn.ModuleList(Block(hidden, model["num_heads"]) for _ in range(model["num_layers"]))
        self.norm = nn.LayerNorm(hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, hidden: int, num_heads: int, num_kv_heads: int, ffn_hidden: int) -> None:
        super().__init__()
        self.head_dim = hidden // num_heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.widths = [hidden, num_kv_heads * self.head_dim, num_kv_heads * self.head_dim]
        self.qkv, self.output = nn.Linear(hidden, sum(self.widths), bias=False), nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 2 * ffn_hidden, bias=False), nn.Linear(ffn_hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        sequences, length, hidden = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).split(self.widths, dim=-1)
        q, k, v = (part.view(sequences, length, -1, self.head_dim).transpose(1, 2) for part in (q, k, v))
        q, k = turned(q, cos, sin).type_as(v), turned(k, cos, sin).type_as(v)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(attended.transpose(1, 2).reshape(sequences, length, hidden))
        gate, up = self.up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, model: dict) -> None:
        super().__init__()
        hidden, heads = model["hidden"], model["num_heads"]
        kv_heads = model.get("num_kv_heads", heads)
        self.tokens = nn.Embedding(model["vocabulary"], hidden)
        layers = range(model["num_layers"])
        self.blocks = nn.ModuleList(LlamaBlock(hidden, heads, kv_heads, model["ffn_hidden"]) for _ in layers)
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, model["vocabulary"], bias=False)
        pairs = torch.arange(0, hidden // heads, 2) / (hidden // heads)
        angles = torch.outer(torch.arange(model["context"]), model.get("rotary_base", 10_000.0) ** -pairs)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def resident_bytes(line: str) -> int:
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(1024 * int(entry.split()[1]) for entry in status if entry.startswith(line))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--microbatch", type=int, help="sequences of one forward and backward pass; the whole batch without it")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return parser.parse_args()


class Step:
    """A training step on random text, of `sequences` sequences in microbatches of `microbatch`."""

    def __init__(
        self, run: dict, sequences: int, microbatch: int, wrap: Callable[[nn.Module], nn.Module], autocast: torch.autocast
    ) -> None:
        if sequences % microbatch != 0:
            raise ValueError(f"--microbatch = {microbatch} must divide {sequences} sequences")
        torch.manual_seed(0)
        kind = Llama if run["model"].get("norm") == "rms" else Gpt
        gpt = kind(run["model"]).to(autocast.device)
        decayed = [parameter for parameter in gpt.parameters() if parameter.dim() > 1]
        others = [parameter for parameter in gpt.parameters() if parameter.dim() == 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        rate = run["train"]["learning_rate"]
        self.optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.loss_of, self.autocast = wrap(gpt), autocast
        length = run["train"].get("sequence_length", run["model"]["context"])
        text = torch.randint(run["model"]["vocabulary"], (sequences, length + 1), device=autocast.device)
        tokens, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        self.microbatches = list(zip(tokens.split(microbatch), labels.split(microbatch)))

    def take(self) -> tuple[float, float]:
        """Seconds and loss of a step."""
        started = time.perf_counter()
        total = torch.zeros((), device=self.autocast.device)
        for tokens, labels in self.microbatches:
            with self.autocast:
                # Microbatches are equally long, so the mean of their means is the mean of the batch.
                loss = self.loss_of(tokens, labels) / len(self.microbatches)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.loss_of.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = total.item()
        return time.perf_counter() - started, loss


def main() -> None:
    asked = arguments()
    with open(asked.run, "rb") as file:
        run = tomllib.load(file)
    torch.set_num_threads(asked.threads)
    print(json.dumps({"before_bytes": 0 if asked.device == "cuda" else resident_bytes("VmRSS")}), flush=True)
    autocast = torch.autocast(asked.device, dtype=torch.bfloat16, enabled=asked.precision == "bf16")
    sequences = run["train"]["global_batch"]
    wrap = torch.compile if asked.compiled else lambda gpt: gpt
    step = Step(run, sequences, asked.microbatch or sequences, wrap, autocast)
    for _ in sys.stdin:
        seconds, loss = step.take()
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)
    peak = torch.cuda.max_memory_allocated() if asked.device == "cuda" else resident_bytes("VmHWM")
    print(json.dumps({"peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
