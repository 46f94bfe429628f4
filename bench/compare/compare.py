"""pleach and PyTorch take turns at the same training step on the same cores; prints a table.

    cargo bench -p train --bench step --no-run          # builds pleach's side
    python bench/compare/compare.py [RUN.toml ...] [--venv FOLDER] [--pairs 9] [--microbatches equal] [--precision bf16] [--products pairs] [--cores 0,1]

    python bench/compare/compare.py bench/gpu/*.toml --device cuda --precision bf16 --products blocks16 --cores 0,1,2,3

With --device cuda both sides run on the first GPU, and the columns of memory are left out: PyTorch counts what it has allocated of the
GPU's memory, and pleach's side the memory of the host.
PyTorch runs with the microbatches of the run file, so that both sides do the same work with as many sequences in memory, and with the
whole batch at once; --microbatches leaves one of the two out. With --venv the folder becomes a virtual environment with PyTorch, unless it is one already; otherwise PyTorch is this interpreter's own. Each pair is
one step of every side; ratios are those of pairs, so that whatever else the machine does meets both.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tomllib
import venv

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[1]
WARM_UP = 2


class Side:
    """A program that does a step per line."""

    def __init__(self, name: str, command: list[str], cores: set[int]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        self.before_bytes = self.answer()["before_bytes"]
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} has ended")
        return json.loads(line)

    def step(self) -> tuple[float, float]:
        """Seconds and, of all threads, CPU seconds of a step."""
        before = self.cpu()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()["seconds"], self.cpu() - before

    def cpu(self) -> float:
        """CPU seconds so far: what a busy machine changes less than the time that passes."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> float:
        """Bytes that the model took at most."""
        self.process.stdin.close()
        answer = self.answer()
        while "peak_bytes" not in answer:
            # A run ends with a step in which all of its ranks hear that it does.
            answer = self.answer()
        self.process.wait()
        return answer["peak_bytes"] - self.before_bytes


def bench() -> str:
    """The built benchmark."""
    asked = ["cargo", "bench", "-p", "train", "--bench", "step", "--no-run", "--message-format", "json"]
    built = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    executables = [json.loads(line).get("executable") for line in built]
    return next(path for path in reversed(executables) if path)


def interpreter(folder: str | None) -> str:
    if folder is None:
        return sys.executable
    python = pathlib.Path(folder) / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "torch", "numpy"], check=True)
    return str(python)


def spread(values: list[float]) -> str:
    first, middle, last = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({first:.3f} to {last:.3f})"


def microbatches(asked: str, microbatch: int, batch: int) -> list[tuple[str, int]]:
    """How many sequences PyTorch takes at once, and how that is called; once where the batch is one microbatch."""
    equal, whole = (f"microbatches of {microbatch}", microbatch), ("whole batch", batch)
    if microbatch == batch:
        return [equal]
    return {"equal": [equal], "whole": [whole], "both": [equal, whole]}[asked]


def compare(run: pathlib.Path, asked: argparse.Namespace, python: str, pleach: str) -> None:
    with open(run, "rb") as file:
        config = tomllib.load(file)
    train, microbatch = config["train"], config["parallelism"]["microbatch_size"]
    cores = {int(core) for core in asked.cores.split(",")}
    ours = [pleach, "--paced", str(run), f"run.device={asked.device}", f"train.precision={asked.precision}"]
    if asked.device == "cpu":
        ours.append(f"run.threads_per_rank={len(cores)}")
    if asked.products:
        ours.append(f"train.products={asked.products}")
    ours.extend(asked.set)
    sides = [Side(f"pleach, microbatches of {microbatch}", ours, cores)]
    reference = [python, str(FOLDER / "reference.py"), str(run), "--threads", str(len(cores)), "--precision", asked.precision, "--device", asked.device]
    for name, sequences in microbatches(asked.microbatches, microbatch, train["global_batch"]):
        command = [*reference, "--microbatch", str(sequences)]
        if asked.compiled != "only":
            sides.append(Side(f"PyTorch, eager, {name}", command, cores))
        if asked.compiled != "no":
            sides.append(Side(f"PyTorch, compiled, {name}", [*command, "--compiled"], cores))
    for pair in range(-WARM_UP, asked.pairs):
        for side in sides:
            seconds, cpu_seconds = side.step()
            if pair >= 0:
                side.seconds.append(seconds)
                side.cpu_seconds.append(cpu_seconds)
    tokens = train["global_batch"] * train.get("sequence_length", config["model"]["context"])
    numbers = f"{asked.precision}, products in {asked.products}" if asked.products else asked.precision
    print(f"\n{run.stem}, {asked.device}, {numbers}, {len(cores)} threads, {asked.pairs} pairs; median (quartiles)\n")
    headings = ["side", "seconds a step", "tokens/s", "pleach's tokens/s against it", "CPU seconds a step", "against it"]
    if asked.device == "cpu":
        headings += ["MB", "pleach's MB over it"]
    print(f"| {' | '.join(headings)} |\n{'|---' * len(headings)}|")
    ours_bytes = None
    for side in sides:
        ratios = [theirs / ours for ours, theirs in zip(sides[0].seconds, side.seconds)]
        rate = tokens / statistics.median(side.seconds)
        cpu_ratios = [theirs / ours for ours, theirs in zip(sides[0].cpu_seconds, side.cpu_seconds)]
        columns = [side.name, spread(side.seconds), f"{rate:.0f}", spread(ratios), spread(side.cpu_seconds), spread(cpu_ratios)]
        side_bytes = side.end()
        ours_bytes = ours_bytes or side_bytes
        if asked.device == "cpu":
            columns += [f"{side_bytes / 1e6:.0f}", f"{ours_bytes / side_bytes:.3f}"]
        print(f"| {' | '.join(columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=pathlib.Path, metavar="RUN.toml", help="run files; without any, the three in this script's folder")
    parser.add_argument("--venv", metavar="FOLDER", help="virtual environment with PyTorch, created unless it exists")
    parser.add_argument("--pairs", type=int, default=9, help="steps of each side that are timed")
    parser.add_argument("--microbatches", choices=["equal", "whole", "both"], default="both", help="what PyTorch takes at once")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast on PyTorch's side")
    parser.add_argument("--products", choices=["chained", "pairs", "blocks16"], help="the order in which pleach's products add their terms")
    parser.add_argument("--cores", default="0,1", help="on which both sides run, with a thread each")
    parser.add_argument("--compiled", choices=["no", "also", "only"], default="also", help="PyTorch with torch.compile")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--binary", help="pleach's side, built before")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a key of pleach's run file")
    asked = parser.parse_args()
    python, pleach = interpreter(asked.venv), asked.binary or bench()
    runs = asked.runs or [FOLDER / name for name in ("gpt_12m.toml", "gpt2_124m.toml", "gpt2_124m_short.toml")]
    for run in runs:
        compare(run, asked, python, pleach)


main()
