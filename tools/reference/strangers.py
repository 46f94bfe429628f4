"""A hundred tokenizers, streams of tokens, chat sets and data sets, made by current transformers, tokenizers, datasets,
pandas and pyarrow, with the tokens, texts and labels that transformers and TRL give.

    pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1 trl==1.16.0
    python tools/reference/strangers.py crates/training/data/src/tests/strangers

The folder gets `cases.json`: tokenizers by name, and a list of cases. Files of cases are in hexadecimal digits where
they are not text. Seeds are fixed, but the library breaks ties by chance when it trains `llama2`, `t5` and `bert`: their
cases differ from run to run, and are right as they are written together.
"""

import io
import json
import pathlib
import random
import sys
import tempfile

import datasets
import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import transformers

from tokenizer_kinds import Collected, kinds, saved, sentences

CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' %}{% generation %}"
          "{{ message.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
INST = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
        "{% generation %} {{ m.content }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
TOOLS = "{% for tool in tools %}<tool>{{ tool | tojson }}</tool>{% endfor %}" + CHATML


def tokens_of(fast, text):
    """The tokens of transformers, and the end of a text where it adds none."""
    ids = fast(text).input_ids
    end = fast.eos_token_id
    return ids if end is None or (ids and ids[-1] == end) or not fast(text, add_special_tokens=False).input_ids else ids + [end]


def tokenizer_cases(made):
    for name, (fast, _) in made.items():
        for seed in range(4):
            texts = [text for text in sentences(100 * seed + 7, 6) if text]
            yield {"kind": "tokenizer", "tokenizer": name, "texts": texts, "tokens": [tokens_of(fast, text) for text in texts]}


def stream_cases(made):
    import torch

    for name, (fast, size) in made.items():
        dice = random.Random(name)
        for case in range(5):
            prompt = fast(dice.choice(["the fox", "naïve", "the", "1234", "Zürich 日"]), add_special_tokens=False).input_ids
            tokens = [dice.randrange(4, size) for _ in range(12 + case)]
            streamer = Collected(fast)
            streamer.put(torch.tensor([prompt]))
            for token in tokens:
                streamer.put(torch.tensor([token]))
            streamer.end()
            whole = fast.decode(prompt)
            yield {"kind": "stream", "tokenizer": name, "prompt": prompt, "tokens": tokens, "text": streamer.text[len(whole):]}


def talk(dice, turns, system):
    words = lambda: " ".join(dice.choice(["fox", "the", "dog", "1234", "naïve", "日本語", "it's"]) for _ in range(dice.randint(1, 4)))
    messages = [{"role": "system", "content": words()}] if system else []
    for _ in range(turns):
        messages += [{"role": "user", "content": words()}, {"role": "assistant", "content": words()}]
    return messages


def chat_cases(made):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    for case in range(20):
        dice = random.Random(1000 + case)
        name, template = [("qwen", CHATML), ("llama2", INST), ("qwen", TOOLS), ("gemma", CHATML)][case % 4]
        fast = made[name][0]
        records, rights = [], []
        for row in range(3):
            messages = talk(dice, 1 + (row + case) % 3, template is not INST and row % 2 == 0)
            tools = [tool] if template is TOOLS else None
            out = fast.apply_chat_template(messages, chat_template=template, tools=tools, tokenize=True, return_dict=True,
                                           return_assistant_tokens_mask=True)
            text = fast.apply_chat_template(messages, chat_template=template, tools=tools, tokenize=False)
            records.append({"messages": messages, **({"tools": tools} if tools else {})})
            rights.append({"text": text, "tokens": out["input_ids"], "learned": out["assistant_masks"]})
        form = case % 5
        yield {"kind": "chat", "tokenizer": name, "template": template, **chat_file(records, form), "right": rights}


def chat_file(records, form):
    if form == 0:
        return {"name": "c.jsonl", "text": "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)}
    if form == 1:
        return {"name": "c.json", "text": json.dumps(records, indent=2)}
    out = io.BytesIO()
    # Tools as JSON, since parameters of tools differ.
    rows = [{key: json.dumps(value) if key == "tools" else value for key, value in record.items()} for record in records]
    if form == 2:
        datasets.Dataset.from_list(rows).to_parquet(out)
        return {"name": "c.parquet", "hex": out.getvalue().hex()}
    if form == 3:
        pandas.DataFrame(rows).to_parquet(out, index=False, compression="gzip")
        return {"name": "c.parquet", "hex": out.getvalue().hex()}
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return {"name": "c.arrow", "hex": out.getvalue().hex()}


def labelled(dice, size):
    """Rows as a data collator of transformers pads them, with the labels that its loss reads."""
    rows = []
    for _ in range(6):
        count = dice.randint(2, 9)
        ids = [dice.randrange(4, size) for _ in range(count)]
        asked = dice.randrange(1, count)
        left, right = dice.choice([(0, 0), (0, 3), (2, 0)])
        rows.append({"input_ids": [0] * left + ids + [0] * right,
                     "attention_mask": [0] * left + [1] * count + [0] * right,
                     "labels": [-100] * (left + asked) + ids[asked:] + [-100] * right})
    return rows


def label_cases():
    for case in range(15):
        dice = random.Random(2000 + case)
        rows = labelled(dice, 250)
        right = [{"tokens": [token for token, is_there in zip(row["input_ids"], row["attention_mask"]) if is_there],
                  "learned": [int(label != -100) for label, is_there in zip(row["labels"], row["attention_mask"]) if is_there]}
                 for row in rows]
        if case % 5 == 4:
            # As TRL writes prompts with completions.
            rows = [{"input_ids": own["tokens"], "completion_mask": own["learned"]} for own in right]
        yield {"kind": "labels", **label_file(rows, case % 3 if case % 5 else 3), "right": right}


def label_file(rows, form):
    out = io.BytesIO()
    if form == 0:
        return {"name": "l.jsonl", "text": "".join(json.dumps(row) + "\n" for row in rows)}
    if form == 1:
        datasets.Dataset.from_list(rows).to_parquet(out)
        return {"name": "l.parquet", "hex": out.getvalue().hex()}
    small = pa.schema([(name, pa.list_(pa.int8() if "mask" in name else pa.int32())) for name in rows[0]])
    table = pa.Table.from_pylist(rows, schema=small if form == 2 else None)
    if form == 2:
        pyarrow.feather.write_feather(table, out, compression="uncompressed")
        return {"name": "l.feather", "hex": out.getvalue().hex()}
    pq.write_table(table, out, compression="snappy", data_page_version="2.0")
    return {"name": "l.parquet", "hex": out.getvalue().hex()}


def text_cases():
    for case in range(11):
        rows = [{"id": place, "text": text} for place, text in enumerate(sentences(3000 + case, 5))]
        frame, out = pandas.DataFrame(rows), io.BytesIO()
        forms = [
            lambda: ("t.csv", frame.to_csv(index=False)),
            lambda: ("t.csv", frame.to_csv()),
            lambda: ("t.tsv", frame.to_csv(index=False, sep="\t", quoting=1)),
            lambda: ("t.json", frame.to_json(orient="records", indent=1)),
            lambda: ("t.jsonl", frame.to_json(orient="records", lines=True)),
            lambda: ("t.json", frame.to_json(orient="records", force_ascii=False)),
            lambda: (datasets.Dataset.from_list(rows).to_json(out), ("t.jsonl", out.getvalue().decode()))[1],
            lambda: (datasets.Dataset.from_list(rows).to_csv(out), ("t.csv", out.getvalue().decode()))[1],
            lambda: (datasets.Dataset.from_list(rows).to_parquet(out), ("t.parquet", out.getvalue()))[1],
            lambda: (frame.to_parquet(out, compression="zstd"), ("t.parquet", out.getvalue()))[1],
            lambda: (frame.to_feather(out), ("t.feather", out.getvalue()))[1],
        ]
        name, content = forms[case]()
        body = {"hex": content.hex()} if isinstance(content, bytes) else {"text": content}
        yield {"kind": "text", "name": name, **body, "right": [row["text"] for row in rows if row["text"]]}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    files, made = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (tokenizer, config) in kinds(17).items():
            own = pathlib.Path(folder) / name
            saved(own, tokenizer, config)
            made[name] = (transformers.AutoTokenizer.from_pretrained(own), tokenizer.get_vocab_size())
            files[name] = {file: (own / file).read_text() for file in ("tokenizer.json", "tokenizer_config.json")}
    cases = [*tokenizer_cases(made), *stream_cases(made), *chat_cases(made), *label_cases(), *text_cases()]
    body = "".join(",\n" + json.dumps(case, ensure_ascii=False) for case in cases)
    (out / "cases.json").write_text('{"tokenizers": ' + json.dumps(files, ensure_ascii=False) + ',\n"cases": [' + body[1:] + "\n]}\n")
    print(f"{len(cases)} cases, {(out / 'cases.json').stat().st_size} bytes")


main()
