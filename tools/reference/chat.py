"""Makes crates/training/data/src/tests/chat: what transformers makes of conversations under chat templates, token by token.

    pip install transformers jinja2
    python tools/reference/chat.py
    python tools/reference/chat.py TEMPLATES OUT

Kept is, in addition to a tokenizer of 400 tokens, for each template and conversation the text, the tokens, and which of these
are of an answer: by `return_assistant_tokens_mask` where the template has a block `generation`, and otherwise by the
rule of `data.chat`, written here a second time. With TEMPLATES and OUT, the same for a folder of other templates;
`PLEACH_CHATS=OUT cargo test -p data --lib tests::chat::` compares with it. tools/install-chats.sh makes OUT of published templates.
"""

import datetime
import json
import pathlib
import shutil
import sys

import tokenizers
import transformers
from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).parents[2] / "crates/training/data/src/tests/chat"
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|tail|>", "<|eot|>", "<turn>", "</turn>", "[INST]", "[/INST]"]


class Midnight(datetime.datetime):
    """The day of the test."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 31)


def make_tokenizer(folder: pathlib.Path, texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=sorted(alphabet), show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    library.save(str(folder / "tokenizer.json"), pretty=False)
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens | {"pad_token": {"content": "</s>"}}) + "\n")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="</s>", **tokens)


def messages_of(record: dict) -> tuple[list, int]:
    """The messages, and the first that may be learned."""
    if "messages" in record:
        return record["messages"], 0
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}], 1
    return prompt + completion, len(prompt)


def answers_by_rule(render, messages: list, first: int) -> list[tuple[int, int]]:
    whole, spans = render(messages, False), []
    for index in range(first, len(messages)):
        if messages[index]["role"] == "assistant":
            before, through = render(messages[:index], True), render(messages[: index + 1], False)
            if not (through.startswith(before) and whole.startswith(through)):
                raise ValueError("earlier messages change")
            start = max([len(before)] + [end for _, end in spans[-1:]])
            spans.append((start, max(start, len(through))))
    return spans


def expected(tokenizer, template: str, record: dict) -> dict:
    messages, first = messages_of(record)

    def render(part, prompt):
        chats, _ = chat_template_utils.render_jinja_template(
            conversations=[part],
            tools=record.get("tools"),
            chat_template=template,
            add_generation_prompt=prompt,
            **tokenizer.special_tokens_map,
        )
        return chats[0]

    text = render(messages, False)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    tokens, places = encoded["input_ids"], encoded["offset_mapping"]
    if "generation %}" in template or "generation -%}" in template:
        out = tokenizer.apply_chat_template(
            messages, tools=record.get("tools"), chat_template=template, return_dict=True, return_assistant_tokens_mask=True
        )
        assert out["input_ids"] == tokens
        mask = out["assistant_masks"]
        if first > 0:
            prompt = render(messages[:first], False)
            if not text.startswith(prompt):
                raise ValueError("earlier messages change")
            mask = [int(one and start >= len(prompt)) for one, (start, _) in zip(mask, places)]
    else:
        spans = answers_by_rule(render, messages, first)
        mask = [int(any(start < end and stop > begin for begin, end in spans)) for start, stop in places]
    return {"text": text, "tokens": " ".join(map(str, tokens)), "mask": "".join(map(str, mask))}


def main() -> None:
    chat_template_utils.datetime = Midnight
    templates, out = (map(pathlib.Path, sys.argv[1:])) if len(sys.argv) > 1 else (FOLDER / "templates", FOLDER)
    out.mkdir(exist_ok=True, parents=True)
    lines = (FOLDER / "conversations.jsonl").read_text()
    if out != FOLDER:
        shutil.copy(FOLDER / "conversations.jsonl", out)
        shutil.copytree(templates, out / "templates", dirs_exist_ok=True)
    tokenizer = make_tokenizer(out, lines.splitlines() * 2)
    result = {}
    for path in sorted(templates.glob("*.jinja")):
        own = result[path.name] = []
        for line in lines.splitlines():
            try:
                own.append(expected(tokenizer, path.read_text(), json.loads(line)))
            except Exception as error:
                own.append({"error": f"{type(error).__name__}: {error}"})
    (out / "expected.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
