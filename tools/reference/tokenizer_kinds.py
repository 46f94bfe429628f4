"""Six kinds of tokenizers of current models, trained on a text of their own with fixed seeds: byte-level BPE as GPT-2 and
as Qwen 2 and Llama 3 split words, BPE with a fallback to bytes as Llama 2 and Gemma have it, unigrams as T5, WordPiece
as BERT. Other programs here import them."""

import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import TextStreamer

WORDS = ("the fox and a dog ran over hills while rain fell on small towns where people read long letters about weights gradients and "
         "pipelines; naïve café Zürich приве́т мир 日本語 テスト 你好 emoji 😀🦊 it's we'll 1234 5678 3.14 x+y=z (a) [b] {c}").split()
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Collected(TextStreamer):
    """The text that a streamer would print."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.text = ""

    def on_finalized_text(self, text, stream_end=False):
        self.text += text


def sentences(seed, count, words=8):
    dice = random.Random(seed)
    lines = []
    for _ in range(count):
        text = " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, words)))
        lines.append(dice.choice(["", " ", "\n", ""]) + text + dice.choice([".", "", "!\n", "  ", "\n\n"]))
    return lines


def template(tokens, pieces):
    ids = {token: place for place, token in enumerate(tokens)}
    used = [piece for piece in pieces.split() if not piece.startswith("$")]
    return processors.TemplateProcessing(single=pieces, special_tokens=[(token, ids[token]) for token in sorted(set(used))])


def byte_level(seed, special, size, pattern):
    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, level]) if split else level
    tokenizer.decoder = decoders.ByteLevel()
    if pattern is not None:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(sentences(seed, 400), trainer)
    return tokenizer


def byte_fallback(seed, special, size, prefix):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps = [normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] + steps) if prefix else steps[0]
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                                          + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    # Merges within words alone, as sentencepiece makes them.
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    plain.train_from_iterator(sentences(seed, 400), trainers.BpeTrainer(
        vocab_size=size - 256 - len(special), show_progress=False, limit_alphabet=60))
    learned = json.loads(plain.to_str())["model"]
    names = special + bytes_ + [token for token, _ in sorted(learned["vocab"].items(), key=lambda item: item[1])]
    own = json.loads(tokenizer.to_str())
    own["model"]["vocab"] = {name: place for place, name in enumerate(dict.fromkeys(names))}
    own["model"]["merges"] = learned["merges"]
    tokenizer = Tokenizer.from_str(json.dumps(own))
    tokenizer.add_special_tokens(special)
    return tokenizer


def unigram(seed, special, size):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(sentences(seed, 400), trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False))
    return tokenizer


def word_piece(seed, special, size):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(sentences(seed, 400), trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special, show_progress=False))
    return tokenizer


def kinds(seed, size=340):
    """Each kind by name: the tokenizer, and what its tokenizer_config.json says."""
    text, llama, bert = "<|endoftext|>", ["<unk>", "<s>", "</s>"], ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    turns, t5 = ["<|begin|>", "<|im_start|>", "<|im_end|>"], ["<pad>", "</s>", "<unk>"]
    made = {
        "gpt2": (byte_level(seed, [text], size, None), {"bos_token": text, "eos_token": text}),
        "qwen": (byte_level(seed + 1, turns, size, SPLIT), {"eos_token": "<|im_end|>", "pad_token": "<|begin|>"}),
        "llama2": (byte_fallback(seed + 2, llama, size, True),
                   {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
        "gemma": (byte_fallback(seed + 3, ["<pad>", "<eos>", "<bos>", "<unk>"], size, False),
                  {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}),
        "t5": (unigram(seed + 4, t5, size // 2), {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}),
        "bert": (word_piece(seed + 5, bert, size // 2),
                 {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}),
    }
    made["llama2"][0].post_processor = template(llama, "<s> $A")
    made["gemma"][0].post_processor = template(["<pad>", "<eos>", "<bos>", "<unk>"], "<bos> $A")
    made["t5"][0].post_processor = template(t5, "$A </s>")
    made["bert"][0].post_processor = template(bert, "[CLS] $A [SEP]")
    return made


def saved(folder, tokenizer, config):
    """Writes both files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config}))
