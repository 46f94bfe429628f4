"""pleach and transformers take turns at the same layer of experts on the same cores; prints a table.

    cargo bench -p cpu --bench experts --no-run         # builds pleach's side
    python bench/compare/experts.py [--python PYTHON] [--rounds 15] [--threads 1 2]

A step is a forward and a backward pass of the router and the experts of one layer in single precision, with the gradients of all weights
and of the input. The layers are those of `crates/kernels/cpu/benches/experts.rs`, in transformers a block of Mixtral and one of OLMoE:
"eager" loops over experts, "grouped_mm" multiplies the rows of all experts in one call. PYTHON has torch and transformers; the default is
this interpreter. The choices of pleach's side are spread evenly, those of the other are of a random router, whose largest expert has a few
percent more. Each round is one step of every side in turn; figures are medians, ratios those of rounds.
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
WARM_UP = 2


def block(layer: tuple[int, int, int], implementation: str):
    """The library's block: Mixtral's where weights add up to 1, as on pleach's side."""
    import transformers
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock

    experts, per_token, width = layer
    sizes = {"hidden_size": HIDDEN, "intermediate_size": width, "num_experts_per_tok": per_token}
    if experts == 8:
        config, kind = transformers.MixtralConfig(num_local_experts=experts, **sizes), MixtralSparseMoeBlock
    else:
        config, kind = transformers.OlmoeConfig(num_experts=experts, norm_topk_prob=True, **sizes), OlmoeSparseMoeBlock
    config._experts_implementation = implementation
    return kind(config)


def serve(layer: tuple[int, int, int], implementation: str, threads: int) -> None:
    """A step for each line of standard input, its seconds to standard output."""
    import time

    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    module = block(layer, implementation)
    for param in module.parameters():
        torch.nn.init.normal_(param, std=0.02)
    x, dy = torch.randn(1, TOKENS, HIDDEN, requires_grad=True), torch.randn(1, TOKENS, HIDDEN)
    print(json.dumps({"ready": implementation}), flush=True)
    for _ in sys.stdin:
        module.zero_grad(set_to_none=True)
        x.grad = None
        start = time.perf_counter()
        module(x).backward(dy)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


class Side:
    """A program that does a step per line."""

    def __init__(self, name: str, command: list[str], cores: set[int]) -> None:
        self.name, self.seconds = name, []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} has ended")
        return json.loads(line)

    def step(self) -> float:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()["seconds"]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def bench() -> str:
    """The built benchmark."""
    asked = ["cargo", "bench", "-p", "cpu", "--bench", "experts", "--no-run", "--message-format", "json"]
    built = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    executables = [json.loads(line).get("executable") for line in built]
    return next(path for path in reversed(executables) if path)


def compare(layer: tuple[int, int, int], threads: int, rounds: int, python: str, built: str) -> None:
    numbers = [str(number) for number in (*layer, threads)]
    cores = set(range(threads))
    sides = [Side("pleach", [built, "steps", *numbers], cores)]
    for implementation in ("eager", "grouped_mm"):
        sides.append(Side(implementation, [python, __file__, "--serve", implementation, *numbers], cores))
    for turn in range(WARM_UP + rounds):
        for side in sides:
            seconds = side.step()
            if turn >= WARM_UP:
                side.seconds.append(seconds)
    experts, per_token, width = layer
    # Three products of F x D for each row of an expert, forward and for both gradients.
    gflop = 2e-9 * 9 * TOKENS * per_token * width * HIDDEN
    for side in sides:
        side.end()
        median = statistics.median(side.seconds)
        ratio = statistics.median(theirs / ours for theirs, ours in zip(side.seconds, sides[0].seconds))
        print(
            f"| {experts} of {width}, {per_token} a token | {threads} | {side.name} | {1e3 * median:.1f} ms | {gflop / median:.1f} "
            f"| {ratio:.2f} |", flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        implementation, *numbers = arguments.serve
        experts, per_token, width, threads = map(int, numbers)
        serve((experts, per_token, width), implementation, threads)
        return
    built = bench()
    print("| experts | threads | side | step | GFLOP/s of products | seconds / pleach's |\n|---|---|---|---|---|---|")
    for threads in arguments.threads:
        for layer in LAYERS:
            compare(layer, threads, arguments.rounds, arguments.python, built)


if __name__ == "__main__":
    main()
