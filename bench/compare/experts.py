"""A layer of experts in pleach and in PyTorch by transformers, in turns on the same cores; prints a table.

    python bench/compare/experts.py [--python PYTHON] [--rounds 15] [--threads 2] [--numbers fp32 bf16] [--shares 1.0 1.5 3.0]

A step is a forward and a backward pass of the router and the experts of one layer, with the gradients of all weights and of the input,
for 2,048 tokens. Both sides have the same choices of experts, of which the first has SHARE times the mean. The other side is a block of
Mixtral: "eager" loops over experts, "grouped_mm" multiplies the rows of all experts in one call, and both are compiled, too. Each side
that fails is named, and left out. pleach's program does a dense layer of the same active size after each step; the ratio of the two is
in the table as well. PYTHON has torch and transformers; the default is this interpreter. Each round is one step of every side in turn;
figures are medians, ratios those of rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
TOKENS, HIDDEN = 2048, 512
# Experts, those of a token, and the width of one.
LAYERS = [(8, 2, 1792), (64, 8, 256)]
WARM_UP = 3
PEERS = ["eager", "eager compiled", "grouped_mm", "grouped_mm compiled"]


def choices(experts: int, per_token: int, share: float) -> list[list[int]]:
    """Those of `crates/kernels/cpu/benches/experts.rs`."""
    to_first = int(share * (TOKENS * per_token) / experts)
    following, choice = 0, []
    for token in range(TOKENS):
        chosen = [0] if token * to_first // TOKENS != (token + 1) * to_first // TOKENS else []
        while len(chosen) < per_token:
            chosen.append(1 + following % (experts - 1))
            following += 1
        choice.append(sorted(chosen))
    return choice


def serve(layer: tuple[int, int, int], share: float, peer: str, threads: int, numbers: str) -> None:
    """A step for each line of standard input, its seconds to standard output."""
    import time

    import torch
    import transformers
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    experts, per_token, width = layer
    implementation, *compiled = peer.split()
    config = transformers.MixtralConfig(
        num_local_experts=experts, num_experts_per_tok=per_token, hidden_size=HIDDEN, intermediate_size=width
    )
    config._experts_implementation = implementation

    class Block(torch.nn.Module):
        """Mixtral's block, with choices that are given."""

        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = torch.nn.Linear(HIDDEN, experts, bias=False), MixtralExperts(config)

        def forward(self, x: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
            shares = torch.softmax(self.gate(x).float(), -1).gather(1, choice)
            return self.experts(x, choice, (shares / shares.sum(-1, keepdim=True)).to(x.dtype))

    kind = torch.bfloat16 if numbers == "bf16" else torch.float32
    module = Block()
    for param in module.parameters():
        torch.nn.init.normal_(param, std=0.02)
    module = module.to(kind)
    step = torch.compile(module) if compiled else module
    choice = torch.tensor(choices(experts, per_token, share))
    x, dy = torch.randn(TOKENS, HIDDEN, dtype=kind, requires_grad=True), torch.randn(TOKENS, HIDDEN, dtype=kind)
    print(json.dumps({"ready": peer}), flush=True)
    for _ in sys.stdin:
        module.zero_grad(set_to_none=True)
        x.grad = None
        start = time.perf_counter()
        step(x, choice).backward(dy)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


class Side:
    """A program that does a step per line."""

    def __init__(self, name: str, command: list[str], cores: set[int]) -> None:
        self.name, self.steps = name, []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read().strip().splitlines()[-1])
        return json.loads(line)

    def step(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def bench() -> str:
    """The built benchmark."""
    asked = ["cargo", "bench", "-p", "cpu", "--bench", "experts", "--no-run", "--message-format", "json"]
    built = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    executables = [json.loads(line).get("executable") for line in built]
    return next(path for path in reversed(executables) if path)


def started(commands: dict[str, list[str]], cores: set[int]) -> list[Side]:
    """The sides that do their first steps."""
    sides = []
    for name, command in commands.items():
        side = Side(name, command, cores)
        try:
            side.answer()
            for _ in range(WARM_UP):
                side.step()
            sides.append(side)
        except RuntimeError as error:
            side.end()
            print(f"{name} fails: {error}", flush=True)
    return sides


def compare(layer: tuple[int, int, int], share: float, numbers: str, arguments: argparse.Namespace, built: str) -> None:
    sizes = [str(number) for number in (*layer, share)]
    common = [*sizes, str(arguments.threads), numbers]
    commands = {"pleach": [built, "steps", *common]}
    for peer in PEERS:
        commands[f"PyTorch {peer}"] = [arguments.python, __file__, "--serve", peer, *common]
    sides = started(commands, set(range(arguments.threads)))
    for _ in range(arguments.rounds):
        for side in sides:
            side.steps.append(side.step())
    experts, per_token, width = layer
    # Three products of 3 F x D for each row of an expert: forward, and both gradients.
    gflop = 2e-9 * 9 * TOKENS * per_token * width * HIDDEN
    ours = [step["seconds"] for step in sides[0].steps]
    dense = statistics.median(step["dense"] / step["seconds"] for step in sides[0].steps)
    for side in sides:
        side.end()
        seconds = [step["seconds"] for step in side.steps]
        median, ratio = statistics.median(seconds), statistics.median(theirs / our for theirs, our in zip(seconds, ours))
        of_dense = f"{dense:.2f}" if side is sides[0] else ""
        print(
            f"| {experts} of {width}, {per_token} a token | {share} | {numbers} | {side.name} | {1e3 * median:.1f} ms "
            f"| {gflop / median:.1f} | {ratio:.2f} | {of_dense} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--numbers", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 1.5, 3.0])
    parser.add_argument("--serve", nargs=7, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        peer, experts, per_token, width, share, threads, numbers = arguments.serve
        return serve((int(experts), int(per_token), int(width)), float(share), peer, int(threads), numbers)
    built = bench()
    print("| experts | first / mean | numbers | side | step | GFLOP/s of experts | seconds / pleach's | active FLOP/s / dense's |")
    print("|---|---|---|---|---|---|---|---|")
    for numbers in arguments.numbers:
        for layer in LAYERS:
            for share in arguments.shares:
                compare(layer, share, numbers, arguments, built)


if __name__ == "__main__":
    main()
