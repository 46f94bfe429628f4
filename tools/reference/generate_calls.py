"""Compares the text of `pleach generate` with what the streamer of transformers prints, for untrained models with six
kinds of tokenizers.

    pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3
    python tools/reference/generate_calls.py target/release/pleach 500 [SEED]

Models of one layer have random weights, whose most probable token is far ahead of the others, so that both programs
choose the same tokens. A call counts as equal if the whole text is the same, byte by byte, and the program ended with
0. Others are printed with both texts.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

from tokenizer_kinds import Collected, kinds, saved, sentences


def model(vocabulary, seed, end):
    """A model in which each token is followed by another one, drawn once."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, eos_token_id=end, bos_token_id=None)
    own = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        own.model.embed_tokens.weight.normal_()
        own.lm_head.weight[torch.randperm(vocabulary)] = own.model.embed_tokens.weight.clone()
    return own


def end_of(tokenizer):
    """The token at which a text ends."""
    return tokenizer.eos_token or tokenizer.sep_token


def main():
    program, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    dice, equal, failed, by_kind = random.Random(seed), 0, 0, {}
    made = list(kinds(seed).items())
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for place, (name, (tokenizer, config)) in enumerate(made * 4):
            own = pathlib.Path(folder) / f"{name}-{place}"
            saved(own, tokenizer, config)
            fast = transformers.AutoTokenizer.from_pretrained(own)
            # A tokenizer without an end of text ends with the separator after it.
            network = model(tokenizer.get_vocab_size(), seed + place, fast.convert_tokens_to_ids(end_of(fast)))
            network.save_pretrained(own)
            saved(own, tokenizer, config)
            models.append((name, own, fast, network))
        for call in range(count):
            name, own, fast, network = models[call % len(models)]
            prompt = dice.choice(sentences(seed + call, 3)) or "the"
            tokens = dice.randint(1, 24)
            ids = torch.tensor([fast(prompt).input_ids])
            if name in ("t5", "bert"):
                # The end of a text does not belong to a prompt.
                ids = ids[:, :-1]
            streamer = Collected(fast)
            network.generate(ids, max_new_tokens=tokens, do_sample=False, streamer=streamer)
            run = subprocess.run([program, "generate", "--from", str(own), "--prompt", prompt, "--max-tokens", str(tokens),
                                  "--temperature", "0"], capture_output=True)
            text = run.stdout.decode(errors="replace")
            right = fast.decode(ids[0])
            # The program repeats the prompt as it was written, and ends with a line end.
            expected = streamer.text[len(right):]
            # The program does not print the token at which it stops.
            expected = expected.removesuffix(end_of(fast)).removesuffix(" " if name == "bert" else "")
            found = text[len(prompt):-1] if text.startswith(prompt) else text
            is_equal = run.returncode == 0 and found.rstrip("\n") == expected.rstrip("\n")
            equal += is_equal
            failed += run.returncode != 0
            rights = by_kind.setdefault(name, [0, 0])
            rights[0] += is_equal
            rights[1] += 1
            if not is_equal:
                print(f"call {call} ({name}, {tokens} tokens, prompt {prompt!r}): exit {run.returncode} {run.stderr.decode()[-300:]}\n"
                      f"  pleach       {found!r}\n  transformers {expected!r}")
    print(f"{equal} of {count} equal, {failed} failed; by kind: "
          + ", ".join(f"{name} {right} of {all_}" for name, (right, all_) in by_kind.items()))


main()
