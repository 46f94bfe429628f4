"""Fine-tunes a small Llama on conversations with pleach and compares its answers with those of transformers and PEFT.

    pip install torch transformers peft jinja2
    python tools/reference/fine_tuned.py target/release/pleach

The base is random, with the tokenizer and a template of crates/training/data/src/tests/chat. Adapters are trained on eight ranks, on
the answers only. The merged export answers in transformers, and the adapters on the base in PEFT; both must give the
greedy tokens of `pleach generate`. The loss of answers must be that of transformers, by its own masks.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

FIXTURES = pathlib.Path(__file__).parents[2] / "crates/training/data/src/tests/chat"
WORDS = ["river", "stone", "cloud", "apple", "tiger", "lemon", "chair", "glass"]
TOKENS = 24
LORA = 'model.lora={ rank = 8, alpha = 16.0, targets = ["query", "key", "value", "output", "gate", "up", "down"] }'


def conversation(number: int) -> list[dict]:
    word = WORDS[number % len(WORDS)]
    asks = [f"Say {word}.", f"Spell {word}."]
    answers = [word, " ".join(word)]
    turns = [("user", asks[0]), ("assistant", answers[0]), ("user", asks[1]), ("assistant", answers[1])]
    return [{"role": role, "content": content} for role, content in turns[: 2 + 2 * (number % 2)]]


def make_base(folder: pathlib.Path) -> None:
    tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "</s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "tokenizer.json"), **tokens)
    tokenizer.chat_template = (FIXTURES / "templates/chatml_marked.jinja").read_text()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, initializer_range=0.1,
        bos_token_id=0, eos_token_id=3, pad_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def mean_loss(model, tokenizer, conversations: list) -> tuple[float, int]:
    """Mean cross-entropy over the tokens of answers, by the masks of transformers."""
    total, count = 0.0, 0
    for messages in conversations:
        encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        tokens, mask = (torch.tensor(encoded[name]) for name in ("input_ids", "assistant_masks"))
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, :-1].double()
        losses = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")
        total += losses[mask[1:] == 1].sum().item()
        count += int(mask[1:].sum())
    return total / count, count


def greedy(model, tokenizer, prompt: str) -> list[int]:
    tokens = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
    for _ in range(TOKENS):
        with torch.no_grad():
            following = model(tokens).logits[0, -1].argmax()
        tokens = torch.cat([tokens, following.view(1, 1)], 1)
    return tokens[0].tolist()


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    folder = pathlib.Path(tempfile.mkdtemp())
    base, run = folder / "base", folder / "run"
    make_base(base)
    chats = [conversation(number) for number in range(64)]
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chats))

    def pleach(*arguments: str) -> str:
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, cwd=folder).stdout

    keys = [
        LORA, "data.chat={}", "data.held_out=0", "train.steps=150", "train.warmup_steps=10", "train.global_batch=8",
        "train.learning_rate=1e-2", "train.min_learning_rate=1e-3", "train.weight_decay=0", "train.sequence_length=96",
        "parallelism.dp=2", "parallelism.tp=2", "parallelism.pp=2", "parallelism.zero=2", f"run.folder={run}",
    ]
    pleach("train", "--quiet", "--from", str(base), "--data", "chats.jsonl", *(part for key in keys for part in ("--set", key)))
    pleach("export", str(run), "--out", "merged")
    pleach("export", str(run), "--out", "adapters", "--as", "adapters")
    own_loss = json.loads(pleach("eval", "--from", str(run), "--data", "chats.jsonl", "--json"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    load = lambda path: transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    merged = load(folder / "merged")
    adapted = peft.PeftModel.from_pretrained(load(base), folder / "adapters").eval()
    before, _ = mean_loss(load(base), tokenizer, chats)
    for name, model in [("merged", merged), ("adapters", adapted)]:
        loss, count = mean_loss(model, tokenizer, chats)
        far = abs(own_loss["loss"] - loss) / loss
        print(f"{name}: loss {loss:.6f} over {count} tokens, of the base {before:.4f}; relative distance of pleach {far:.1e}")
        assert far < 1e-5 and count == own_loss["tokens"], own_loss
    for number in range(len(WORDS)):
        messages = conversation(number)[:1]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        answer = pleach(
            "generate", "--from", str(run), "--prompt", prompt, "--max-tokens", str(TOKENS), "--temperature", "0"
        )
        for name, model in [("merged", merged), ("adapters", adapted)]:
            text = tokenizer.decode(greedy(model, tokenizer, prompt), skip_special_tokens=False)
            assert answer.rstrip("\n") == text.rstrip("\n"), f"{name}: {text!r} and not {answer!r}"
        print(f"{messages[0]['content']!r}: {text[len(prompt):].split('<|im_end|>')[0]!r}")
    print("the same greedy tokens in pleach, transformers and PEFT")


if __name__ == "__main__":
    main()
