#!/bin/sh
# Generates text as parquet (row groups of 1 GB and of 64 MiB), as JSON lines, and these in zstd and in gzip, and makes a token
# file of each with a release build. Prints for each the seconds, tokens per second of a core, and the most memory without
# the page cache (RssAnon); first, in turns on 8 MB of the same text, the tokens per second of a core of pleach and of
# `encode_batch` of the `tokenizers` library, by the time of cores. Ends with 1 where a token file has another hash than the
# others, or where more than 300 MB were used.
#
#     tools/tokenize-memory.sh [GIGABYTES of text, 10] [PROGRAM]
#
# Needs python3 with venv and network for three packages, and room for about 2 bytes of each byte of text. The formats are generated
# and removed one after the other. Those that are done are kept in target/tokenize-memory.jsonl for this size and this program:
# stopped, the same command continues.
set -eu
cd "$(dirname "$0")/.."

gigabytes=${1:-10}
program=${2:-}
if [ -z "$program" ]; then
    cargo build --release -p cli
    program=target/release/pleach
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/pleach-tokenize-XXXXXX")
trap 'rm -rf "$folder"' EXIT
python3 -m venv target/tokenize-memory
target/tokenize-memory/bin/pip install -q pyarrow==26.0.1 zstandard==0.25.0 tokenizers==0.23.3
target/tokenize-memory/bin/python - "$program" "$folder" "$gigabytes" <<'PROGRAM'
import gzip, hashlib, itertools, json, os, random, resource, statistics, subprocess, sys, time

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from tokenizers import Tokenizer

program, folder, gigabytes = sys.argv[1], sys.argv[2], float(sys.argv[3])
TOTAL = int(gigabytes * 1e9)
MOST_MB = 300
# Bytes of text in row groups: of a size that some files have, and of the usual one.
GROUPS = [10**9] + [64 << 20] * 15
SAMPLE, TURNS = 8e6, 5
CORES = len(os.sched_getaffinity(0))


def documents():
    """The same documents for the same size: paragraphs of words, in which common ones are common."""
    drawn = random.Random(20261125)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(drawn.choice(letters[:8 + n % 19]) for _ in range(1 + n % 11)) for n in range(60000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    paragraphs = []
    for _ in range(40000):
        chosen = drawn.choices(words, weights, k=drawn.randrange(20, 120))
        paragraphs.append(" ".join(chosen).capitalize() + ".\n")
    made = 0
    while made < TOTAL:
        text = "".join(drawn.choices(paragraphs, k=drawn.randrange(1, 12)))
        made += len(text)
        yield text


def batches(sizes):
    """The documents in batches of these sizes in turn."""
    held, bytes_held, sizes = [], 0, itertools.cycle(sizes)
    size = next(sizes)
    for text in documents():
        held.append(text)
        bytes_held += len(text)
        if bytes_held >= size:
            yield held
            held, bytes_held, size = [], 0, next(sizes)
    if held:
        yield held


def parquet(path):
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for held in batches(GROUPS):
            table = pa.table({"id": pa.array(range(len(held)), pa.int64()), "text": held}, schema=schema)
            writer.write_table(table, row_group_size=len(held))


def lines(opened, part=None):
    def write(path):
        with opened(path) as file:
            for held in [part] if part else batches([1 << 20]):
                file.write("".join(json.dumps({"text": text}) + "\n" for text in held).encode())
    return write


def zstd(path):
    return zstandard.ZstdCompressor(level=3, threads=CORES).stream_writer(open(path, "wb"), closefd=True)


FORMATS = {
    "jsonl": lines(lambda path: open(path, "wb")),
    "parquet": parquet,
    "jsonl.zst": lines(zstd),
    "jsonl.gz": lines(lambda path: gzip.open(path, "wb", compresslevel=1)),
}
if TOTAL > 2e9:
    # Python takes long to write gzip.
    del FORMATS["jsonl.gz"]


def measured(arguments):
    """Seconds, most RssAnon in MB, and the last line of the command."""
    began = time.monotonic()
    with subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True) as command:
        most = 0
        while command.poll() is None:
            try:
                status = open(f"/proc/{command.pid}/status").read()
                most = max(most, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)
            except (FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.02)
        said = command.stdout.read().strip()
    if command.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {command.returncode}")
    return time.monotonic() - began, most / 1e3, said


def tokens_in(said):
    return int(said.split(" documents, ")[1].split(" ")[0].replace(",", ""))


def spent(children):
    """Seconds of cores that this process, or its children, have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


texts, bytes_of = [], 0
for text in documents():
    texts.append(text)
    bytes_of += len(text)
    if bytes_of > SAMPLE:
        break
# The tokenizer is trained on a part, which takes less time.
sample, small = f"{folder}/sample.jsonl", f"{folder}/small.jsonl"
for path, part in [(sample, texts), (small, texts[: len(texts) // 4])]:
    lines(lambda path: open(path, "wb"), part)(path)
subprocess.run([program, "data", "tokenize", small, "--tokenizer", "bpe:8192", "--out", f"{folder}/a.bin"], check=True)
tokenizer = f"{folder}/a.tokenizer.json"

# Both in turns on the same text, by the time of cores: others that use the machine take little from it.
library, rates = Tokenizer.from_file(tokenizer), {"tokenizers": [], "pleach": []}
for turn in range(TURNS):
    began = spent(children=False)
    counted = sum(len(encoding.ids) for encoding in library.encode_batch(texts, add_special_tokens=False))
    rates["tokenizers"].append(counted / (spent(children=False) - began))
    began = spent(children=True)
    _, _, said = measured(["data", "tokenize", sample, "--tokenizer", tokenizer, "--out", f"{folder}/b.tokens"])
    rates["pleach"].append(tokens_in(said) / (spent(children=True) - began))
    os.remove(f"{folder}/b.tokens")
for who, of in rates.items():
    print(f"{who}: {statistics.median(of) / 1e6:.3f} million tokens a second of a core, {min(of) / 1e6:.3f} to "
          f"{max(of) / 1e6:.3f} in {TURNS} turns, {counted:,} tokens", flush=True)
del texts

def tokenized(name, write):
    """The hash of the token file of a format, its memory in MB, and a line about both."""
    source, out = f"{folder}/source", f"{folder}/out.tokens"
    write(source)
    packed, free = os.path.getsize(source), os.statvfs(folder)
    if free.f_bavail * free.f_frsize < TOTAL * 0.6:
        sys.exit(f"{folder} has too little room for the token file")
    began = spent(children=True)
    seconds, megabytes, said = measured(["data", "tokenize", source, "--tokenizer", tokenizer, "--out", out])
    of_cores, tokens = spent(children=True) - began, tokens_in(said)
    line = (f"{name}: {packed / 1e9:.2f} GB, {tokens:,} tokens in {os.path.getsize(out) / 1e9:.2f} GB, {seconds:.1f} s, "
            f"{tokens / of_cores / 1e6:.3f} million tokens a second of a core, {megabytes:.0f} MB")
    os.remove(source)
    os.remove(out)
    return {"hash": said.rsplit("hash ", 1)[1], "megabytes": megabytes, "line": line}


KEPT = "target/tokenize-memory.jsonl"
with open(program, "rb") as file:
    key = f"{gigabytes} {hashlib.file_digest(file, 'sha256').hexdigest()}"
kept = [json.loads(line) for line in open(KEPT)] if os.path.exists(KEPT) else []
done = {of["name"]: of for of in kept if of["key"] == key}
for name, write in FORMATS.items():
    if name not in done:
        done[name] = {"key": key, "name": name, **tokenized(name, write)}
        with open(KEPT, "a") as file:
            file.write(json.dumps(done[name]) + "\n")
    print(done[name]["line"], flush=True)
hashes = {of["hash"] for of in done.values()}
if len(hashes) != 1:
    sys.exit(f"the token files differ: {sorted(hashes)}")
print(f"all token files have the hash {hashes.pop()}")
sys.exit(1 if any(of["megabytes"] > MOST_MB for of in done.values()) else 0)
PROGRAM
