"""Makes the vectors of crates/proof/prove/tests/pytorch/long: one sequence with several documents, by PyTorch in double precision.

    pip install torch numpy
    python tools/reference/long_sequence.py

Kept are the initial weights, the tokens, the first token of each document, the loss, the logits of some tokens and the
gradients of all parameters. It takes 10 GB of memory.
"""

import tomllib

import torch

from gpt import FOLDER, IGNORED, VOCABULARY, initial_weights, logits
from tensors import save

PATH = FOLDER / "long/three_documents.toml"
# Documents begin in chunks of different ranks, none where a chunk begins.
STARTS = [0, 1171, 2730]
# Tokens from one whose logits are kept to the next.
EVERY = 61


def main() -> None:
    torch.manual_seed(20_240_229)
    config = tomllib.loads(PATH.read_text())
    model, length = config["model"], config["train"]["sequence_length"]
    start = initial_weights(model)
    tokens = torch.randint(VOCABULARY, (length + 1,))
    is_fresh = torch.rand(length + 1) < 0.25
    for place in range(1, length + 1):
        if not is_fresh[place]:
            tokens[place] = (tokens[place - 1] * 7 + 3) % VOCABULARY
    labels = tokens[1:].clone()
    # The last token of a document has no successor.
    labels[torch.tensor(STARTS[1:] + [length]) - 1] = IGNORED
    place = torch.arange(length)
    first = torch.tensor(STARTS)[torch.searchsorted(torch.tensor(STARTS), place, right=True) - 1]
    batch = {"tokens": tokens[:-1], "labels": labels, "first_visible": first, "positions": place - first}
    batch = {name: values[None] for name, values in batch.items()}
    params = {name: torch.nn.Parameter(values.double()) for name, values in start.items()}
    rows = logits(params, model, batch)
    loss = torch.nn.functional.cross_entropy(rows.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)
    loss.backward()
    tensors = {"tokens": tokens.to(torch.int8), "starts": torch.tensor(STARTS, dtype=torch.int32)}
    tensors |= {"loss": loss[None], "logits": rows[0, ::EVERY].float()}
    tensors |= {f"initial/{name}": values.bfloat16() for name, values in start.items()}
    tensors |= {f"gradient/{name}": param.grad.float() for name, param in params.items()}
    save(PATH.with_suffix(".safetensors"), tensors)


if __name__ == "__main__":
    main()
