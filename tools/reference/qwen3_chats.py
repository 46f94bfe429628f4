"""Compares the loss of `pleach eval` on multi-turn chats with that of transformers: Qwen 3's own template, and the one
that TRL trains it with.

    pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 trl==1.16.0 datasets==5.2.0
    python tools/reference/qwen3_chats.py target/release/pleach

A Qwen 3 of two layers has random weights. Half of the answers have thoughts, which Qwen 3's template drops from earlier
answers. With it, the right loss is the mean over the tokens of each answer, in the text that ends with it, as
`apply_chat_template` of transformers writes that. With TRL's template it is that of the tokens of `assistant_masks`,
which TRL learns with `assistant_only_loss`.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import datasets
import torch
import transformers
import trl

from tokenizer_kinds import kinds, saved

TEMPLATES = pathlib.Path(trl.__file__).parent / "chat_templates"


def talks(count):
    dice, rows = random.Random(56), []
    vocabulary = "the fox and a dog read letters 1234 naïve 日本語 it's 😀".split()
    words = lambda most: " ".join(dice.choice(vocabulary) for _ in range(dice.randint(1, most)))
    for row in range(count):
        messages = [{"role": "system", "content": words(4)}] if row % 3 == 0 else []
        for turn in range(1 + row % 4):
            answer = f"<think>\n{words(6)}\n</think>\n\n{words(5)}" if (row + turn) % 2 else words(5)
            messages += [{"role": "user", "content": words(5)}, {"role": "assistant", "content": answer}]
        rows.append({"messages": messages})
    return rows


def of_answers(fast, template, messages):
    """Tokens and whether each is learned, of each answer in the text that ends with it."""
    write = lambda own, prompt: fast.apply_chat_template(own, chat_template=template, tokenize=False, add_generation_prompt=prompt)
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            text, before = write(messages[:place + 1], False), write(messages[:place], True)
            assert text.startswith(before), (text, before)
            out = fast(text, add_special_tokens=False, return_offsets_mapping=True)
            yield out.input_ids, [end > len(before) for _, end in out.offset_mapping]


def of_masks(fast, template, messages):
    out = fast.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    yield out["input_ids"], [bool(learned) for learned in out["assistant_masks"]]


def loss_of(model, samples):
    total, count = 0.0, 0
    for ids, learned in samples:
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        kept = torch.tensor(learned[1:])
        total, count = total + losses[kept].sum().item(), count + int(kept.sum())
    return total / count, count


def main():
    program = pathlib.Path(sys.argv[1]).absolute()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rows = talks(40)
    tokenizer, own = kinds(3, 400)["qwen"]
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = pathlib.Path(name)
        config = transformers.Qwen3Config(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=1024, tie_word_embeddings=True, eos_token_id=2, bos_token_id=None)
        model = transformers.Qwen3ForCausalLM(config).eval()
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(std=0.3)
        datasets.Dataset.from_list(rows).to_parquet(folder / "chats.parquet")
        for template, samples in (("qwen3.jinja", of_answers), ("qwen3_training.jinja", of_masks)):
            text = (TEMPLATES / template).read_text()
            model.save_pretrained(folder / "model")
            saved(folder / "model", tokenizer, own)
            (folder / "model" / "chat_template.jinja").write_text(text)
            fast = transformers.AutoTokenizer.from_pretrained(folder / "model")
            right, tokens = loss_of(model, [sample for row in rows for sample in samples(fast, text, row["messages"])])
            run = subprocess.run([program, "eval", "--from", "model", "--data", "chats.parquet", "--json",
                                  "--set", "data.path=chats.parquet", "--set", 'data.chat={ template = "model" }',
                                  "--set", "train.sequence_length=1000"],
                                 cwd=folder, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            found = json.loads(run.stdout)
            print(f"{template}: transformers {right:.7f} over {tokens} tokens, pleach {found['loss']:.7f} over {found['tokens']}, "
                  f"difference {abs(found['loss'] - right):.1e}")
            assert found["tokens"] == tokens and abs(found["loss"] - right) < 2e-6 * right


main()
