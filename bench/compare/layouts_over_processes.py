"""Layouts of a Llama in processes of one thread: pleach over shared memory and over TCP, and picotron over Gloo, in turns.

    cargo build --release
    python bench/compare/layouts_over_processes.py CHECKOUT_OF_PICOTRON [--layouts dp=2 tp=2 pp=2 dp=2,tp=2,pp=2] [--rounds 3] [--steps 6]

Both sides begin with the same weights; the losses of one sequence are compared first. A round is one run of every side. The figure of a run
is the median of its steps after the first two; a ratio is that of a round. picotron is used as a library, in fp32 on CPUs: modules of
GPUs that it imports are empty here, and its own loop over microbatches and its all-reduces over Gloo are timed. Needs PyTorch and
safetensors.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import types

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from processes import PLEACH, ROOT, WARM_UP, run

SIDES = ["shared-memory", "tcp"]
AXES = ["dp", "tp", "pp"]
# Names in the Hugging Face library and in picotron, and the dim that tensor-parallel ranks share.
OUTER = [
    ("model.embed_tokens.weight", "embedding.weight", 0),
    ("model.norm.weight", "final_norm.weight", None),
    ("lm_head.weight", "final_proj.weight", 0),
]
OF_LAYER = [
    ("input_layernorm.weight", "input_layernorm.weight", None),
    ("self_attn.q_proj.weight", "attention.q_proj.weight", 0),
    ("self_attn.k_proj.weight", "attention.k_proj.weight", 0),
    ("self_attn.v_proj.weight", "attention.v_proj.weight", 0),
    ("self_attn.o_proj.weight", "attention.out_proj.weight", 1),
    ("post_attention_layernorm.weight", "post_attention_layernorm.weight", None),
    ("mlp.gate_proj.weight", "mlp.gate_proj.weight", 0),
    ("mlp.up_proj.weight", "mlp.up_proj.weight", 0),
    ("mlp.down_proj.weight", "mlp.down_proj.weight", 1),
]


def model_config(model: dict) -> dict:
    """The model of a run file as the Hugging Face library describes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model["hidden"],
        "intermediate_size": model["ffn_hidden"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_heads"],
        "num_key_value_heads": model["num_heads"],
        "max_position_embeddings": model["context"],
        "vocab_size": model["vocabulary"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


def names(layers: int) -> list[tuple[str, str, int | None]]:
    of_layers = [
        (f"model.layers.{layer}.{theirs}", f"decoder_layers.{layer}.{picotron}", dim)
        for layer in range(layers)
        for theirs, picotron, dim in OF_LAYER
    ]
    return OUTER + of_layers


def write_weights(folder: pathlib.Path, config: dict) -> None:
    """A folder of the Hugging Face library with weights at random."""
    torch.manual_seed(1)
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    shapes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    weights = {}
    for name, _, dim in names(config["num_hidden_layers"]):
        if dim is None:
            weights[name] = torch.ones(hidden)
            continue
        shape = (vocabulary, hidden) if name.startswith(("model.embed", "lm_head")) else shapes.get(name.split(".")[-2], (hidden, hidden))
        weights[name] = torch.randn(shape) * 0.02
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def empty_modules() -> None:
    """Stands for the kernels of GPUs that picotron imports and does not call on CPUs, and for its waits for a GPU."""
    torch.cuda.synchronize = lambda *_: None
    for name, attributes in {
        "flash_attn": [],
        "flash_attn.flash_attn_interface": ["flash_attn_func"],
        "flash_attn.layers": [],
        "flash_attn.layers.rotary": ["apply_rotary_emb"],
        "flash_attn.ops": [],
        "flash_attn.ops.triton": [],
        "flash_attn.ops.triton.layer_norm": ["layer_norm_fn"],
    }.items():
        module = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, None)
        sys.modules[name] = module


class Batches:
    """The sequences of one replica, one microbatch after the other, as picotron's steps read them."""

    def __init__(self, tokens: torch.Tensor, microbatches: int) -> None:
        self.tokens, self.grad_acc_steps, self.next = tokens, microbatches, 0

    def __next__(self) -> dict[str, torch.Tensor]:
        tokens = self.tokens[self.next % len(self.tokens)].unsqueeze(0)
        self.next += 1
        positions = torch.arange(tokens.shape[1] - 1).unsqueeze(0)
        return {"input_ids": tokens[:, :-1].contiguous(), "target_ids": tokens[:, 1:].contiguous(), "position_ids": positions}


def build(weights: str, config: dict, layout: dict[str, int]):
    """The part of the model of this process, with its weights."""
    import picotron.process_group_manager as groups
    from picotron.model import Llama
    from picotron.pipeline_parallel.pipeline_parallel import PipelineParallel
    from picotron.tensor_parallel.tensor_parallel import apply_tensor_parallel

    groups.setup_process_group_manager(tp_size=layout["tp"], cp_size=1, pp_size=layout["pp"], dp_size=layout["dp"])
    place = groups.process_group_manager
    described = types.SimpleNamespace(**config)
    model = Llama(config=described)
    if layout["tp"] > 1:
        model = apply_tensor_parallel(model)
    if layout["pp"] > 1:
        model = PipelineParallel(model, described)
    whole = load_file(weights)
    state = model.state_dict()
    given = {}
    for theirs, own, dim in names(config["num_hidden_layers"]):
        if own in state:
            given[own] = whole[theirs] if dim is None else whole[theirs].chunk(layout["tp"], dim)[place.tp_rank].contiguous()
    model.load_state_dict(given, strict=True)
    return model, place


def take_step(model, batches: Batches, layout: dict[str, int], hidden: int) -> float:
    """One step without the optimizer; returns the loss of the last stage."""
    if layout["pp"] > 1:
        from picotron.pipeline_parallel.pipeline_parallel import train_step_pipeline_1f1b

        shape = (1, batches.tokens.shape[1] - 1, hidden)
        return train_step_pipeline_1f1b(model, batches, shape, torch.device("cpu"), torch.float32)
    total = 0.0
    for microbatch in range(batches.grad_acc_steps):
        model.require_backward_grad_sync = microbatch + 1 == batches.grad_acc_steps
        batch = next(batches)
        logits = model(input_ids=batch["input_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["target_ids"].flatten()) / batches.grad_acc_steps
        loss.backward()
        total += loss.item()
    return total


def process(rank: int, asked: dict, layout: dict[str, int], times) -> None:
    size = math.prod(layout.values())
    os.environ |= {"LOCAL_RANK": str(rank), "FLASH_ATTEN": "0", "DEVICE": "cpu", "DTYPE": "float32"}
    empty_modules()
    sys.path.insert(0, asked["picotron"])
    torch.set_num_threads(1)
    if size <= (os.cpu_count() or 1):
        os.sched_setaffinity(0, {rank})
    dist.init_process_group("gloo", init_method=f"file://{asked['meeting']}", rank=rank, world_size=size)
    config = asked["config"]
    model, place = build(asked["weights"], config, layout)
    if layout["dp"] > 1:
        from picotron.data_parallel.data_parallel import DataParallelBucket

        model = DataParallelBucket(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=asked["learning_rate"], weight_decay=0.0)
    microbatches = asked["sequences"] // layout["dp"]
    # The first sequence of every replica is the same one, whose loss is compared.
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(config["vocab_size"], (microbatches, asked["length"] + 1), generator=generator)
    tokens[:] = tokens[0]
    batches = Batches(tokens, microbatches)
    seconds, first = [], None
    for _ in range(asked["steps"]):
        dist.barrier()
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = take_step(model, batches, layout, config["hidden_size"])
        optimizer.step()
        if hasattr(model, "reset"):
            model.reset()
        dist.barrier()
        seconds.append(time.perf_counter() - started)
        first = loss if first is None else first
    if place.pp_is_last_stage and place.tp_rank == 0 and place.dp_rank == 0:
        times.put((statistics.median(seconds[WARM_UP:]), first))
    dist.destroy_process_group()


def picotron(asked: dict, layout: dict[str, int]) -> tuple[float, float]:
    """Seconds of a step of picotron, and its loss before the first."""
    context = multiprocessing.get_context("spawn")
    times = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        asked = asked | {"meeting": os.path.join(folder, "meeting")}
        sides = [context.Process(target=process, args=(rank, asked, layout, times)) for rank in range(math.prod(layout.values()))]
        for side in sides:
            side.start()
        for side in sides:
            side.join()
        if any(side.exitcode != 0 for side in sides):
            sys.exit(f"picotron: exit codes {[side.exitcode for side in sides]}")
        return times.get()


def loss_of_pleach(weights: pathlib.Path, config: dict, length: int, folder: pathlib.Path) -> float:
    """The loss of the sequence whose loss picotron reports."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(config["vocab_size"], (1, length + 1), generator=generator)[0].tolist()
    file = folder / "tokens.json"
    file.write_text(json.dumps({"input_ids": [tokens[:-1]], "labels": [tokens[1:]]}), encoding="utf-8")
    command = [PLEACH, "forward", "--from", weights, "--tokens", file, "--out", folder / "out.safetensors"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"forward: {ended.stderr}")
    return float(re.search(r"loss ([\d.]+)", ended.stderr).group(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("picotron", help="folder of a checkout of picotron")
    parser.add_argument("run", nargs="?", default=str(ROOT / "bench/compare/llama_12m.toml"))
    parser.add_argument("--layouts", nargs="+", default=["dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    with open(given.run, "rb") as file:
        run_file = tomllib.load(file)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config, length = model_config(run_file["model"]), run_file["train"]["sequence_length"]
        write_weights(folder / "weights", config)
        expected = loss_of_pleach(folder / "weights", config, length, folder)
        asked = {
            "picotron": given.picotron,
            "config": config,
            "weights": str(folder / "weights/model.safetensors"),
            "learning_rate": run_file["train"]["learning_rate"],
            "sequences": run_file["train"]["global_batch"],
            "length": length,
            "steps": given.steps,
        }
        for text in given.layouts:
            layout = dict.fromkeys(AXES, 1) | {axis: int(degree) for axis, degree in re.findall(r"(\w+)=(\d+)", text)}
            seconds: dict[str, list[float]] = {side: [] for side in ["picotron", *SIDES]}
            for number in range(given.rounds):
                taken, loss = picotron(asked, layout)
                if abs(loss - expected) > 1e-3:
                    sys.exit(f"{text}: picotron's first loss is {loss:.4f}, and pleach's {expected:.4f}: the weights differ")
                seconds["picotron"].append(taken)
                for side in SIDES:
                    own = str(folder / f"{text}-{side}-{number}")
                    seconds[side].append(run(side, given.run, layout, 1, given.steps, own, ["--from", str(folder / "weights")]))
            for side, taken in seconds.items():
                ratios = sorted(theirs / own for theirs, own in zip(seconds["picotron"], taken))
                middle = statistics.median(ratios)
                print(
                    f"{text:16} {side:14} {statistics.median(taken):.3f} s a step, {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
                    "of the speed of picotron"
                )


if __name__ == "__main__":
    main()
