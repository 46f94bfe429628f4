"""Tables of parquet and Arrow, and compressed streams, as pyarrow and zstd write them.

    pip install pyarrow==26.0.1 zstandard==0.25.0
    python tools/reference/tables.py crates/base/formats/src/tests/tables crates/base/formats/src/tests/encrypted

Row i of every table is known without it: crates/base/formats/src/tests/tables.rs has the same rule. Columns are before and
after those that are read, so that a reader must find them.
"""

import base64
import gzip
import pathlib
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import zstandard

ROWS = 60


def text(i):
    if i % 10 == 9:
        return None
    return f"row {i} " + "wörter für " * (i % 7)


def tokens(i):
    if i % 12 == 11:
        return None
    return [(i * 31 + k * 7) % 200 for k in range(i % 5)]


def table(string, integer, chunks=1):
    columns = {
        "id": pa.array(range(ROWS), pa.int64()),
        "labels": pa.array([[f"l{i}"] * (i % 3) for i in range(ROWS)], pa.list_(pa.string())),
        "meta": pa.array([{"score": i / 2, "source": f"s{i % 4}"} for i in range(ROWS)],
                         pa.struct([("score", pa.float64()), ("source", pa.string())])),
        "text": pa.array([text(i) for i in range(ROWS)], string),
        "input_ids": pa.array([tokens(i) for i in range(ROWS)], pa.list_(integer)),
        "last": pa.array([i % 2 == 0 for i in range(ROWS)], pa.bool_()),
    }
    whole = pa.table(columns)
    size = -(-ROWS // chunks)
    return pa.concat_tables([whole.slice(at, size) for at in range(0, ROWS, size)])


def parquet(folder):
    plain = table(pa.string(), pa.int32())
    wide = table(pa.string(), pa.int64())
    small = {"data_page_size": 128, "write_batch_size": 8, "row_group_size": 25}
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        for version in ["1.0", "2.0"]:
            name = f"{codec}-pages-{version[0]}.parquet"
            pq.write_table(plain, folder / name, compression=codec, data_page_version=version,
                           write_page_checksum=True, **small)
    for name, encodings in {
        "plain": {"text": "PLAIN", "input_ids.list.element": "PLAIN"},
        "lengths": {"text": "DELTA_LENGTH_BYTE_ARRAY", "input_ids.list.element": "DELTA_BINARY_PACKED"},
        "prefixes": {"text": "DELTA_BYTE_ARRAY", "input_ids.list.element": "DELTA_BINARY_PACKED"},
    }.items():
        pq.write_table(wide, folder / f"{name}.parquet", compression="zstd", use_dictionary=False,
                       column_encoding=encodings, **small)


    with pq.ParquetWriter(folder / "empty-groups.parquet", plain.schema, compression="snappy") as writer:
        for part in [plain.slice(0, 0), plain.slice(0, 25), plain.slice(0, 0), plain.slice(25), plain.slice(0, 0)]:
            writer.write_table(part)


class PlainKeys(encryption.KmsClient):
    """Keys that no service wraps."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return base64.b64encode(key)

    def unwrap_key(self, key, _):
        return base64.b64decode(key)


def encrypted(folder):
    whole = table(pa.string(), pa.int32())
    factory = encryption.CryptoFactory(PlainKeys)
    for name, plain_footer in [("encrypted-column", True), ("encrypted", False)]:
        chosen = encryption.EncryptionConfiguration(footer_key="f", column_keys={"c": ["text"]},
                                                    plaintext_footer=plain_footer, double_wrapping=False)
        properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), chosen)
        with pq.ParquetWriter(folder / f"{name}.parquet", whole.schema, compression="snappy",
                              encryption_properties=properties) as writer:
            writer.write_table(whole)


def arrow(folder):
    options = pa.ipc.IpcWriteOptions
    kinds = {
        "strings": table(pa.string(), pa.int32(), 3),
        "large": table(pa.large_string(), pa.uint16(), 3),
        "views": table(pa.string_view(), pa.int64(), 3),
    }
    for name, whole in kinds.items():
        for codec in [None, "lz4", "zstd"]:
            own = f"{name}-{codec or 'none'}.arrow"
            with pa.ipc.new_file(folder / own, whole.schema, options=options(compression=codec)) as writer:
                writer.write_table(whole)
    whole = kinds["strings"]
    with pa.ipc.new_stream(folder / "stream.arrows", whole.schema) as writer:
        writer.write_table(whole)


def compressed(folder):
    lines = "".join(f"{text(i)}\n" for i in range(ROWS)).encode()
    half = len(lines) // 2
    (folder / "lines.txt.gz").write_bytes(gzip.compress(lines[:half], mtime=0) + gzip.compress(lines[half:], mtime=0))
    pack = zstandard.ZstdCompressor(level=19, write_checksum=True).compress
    skipped = bytes([0x51, 0x2A, 0x4D, 0x18, 3, 0, 0, 0]) + b"abc"
    (folder / "lines.txt.zst").write_bytes(pack(lines[:half]) + skipped + pack(lines[half:]))


def main():
    folder, of_encrypted = (pathlib.Path(argument) for argument in sys.argv[1:3])
    for made in (folder, of_encrypted):
        made.mkdir(parents=True, exist_ok=True)
    parquet(folder)
    arrow(folder)
    compressed(folder)
    encrypted(of_encrypted)


main()
