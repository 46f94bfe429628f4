"""Chats as lists of structs in tables of parquet and Arrow, as pyarrow and the datasets library write them.

    pip install pyarrow==26.0.1 datasets==5.2.0
    python tools/reference/chats.py crates/base/formats/src/tests/chats crates/training/data/src/tests/chat/tables

In the first folder `messages.jsonl` and `tools.jsonl` have the JSON of each row: without fields that are null, and an empty line for a row
that is null. In the second are conversations as the datasets library writes them to JSON lines and to parquet, and with
tools as JSON in an Arrow stream.
"""

import json
import pathlib
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 12


def message(row, place):
    if (row, place) == (11, 1):
        return None
    call = {"function": {"name": "add", "arguments": {"a": row, "b": [row / 4, None]}}}
    return {
        "role": ["user", "assistant"][place % 2],
        "content": None if row % 5 == 3 and place == 1 else f"row {row} \"{place}\" \\ wörter\n\t" * (row % 4),
        "train": [None, True, False][(row + place) % 3],
        "weight": None if place else row,
        "tool_calls": [call] * (row % 3) if row % 5 == 3 and place == 1 else None,
        "unused": None,
    }


def messages(row):
    if row % 11 == 10:
        return None
    return [message(row, place) for place in range(row % 4)]


def tools(row):
    if row % 6 == 5:
        return None
    return [{"type": "function", "function": {"name": "add", "strict": row % 2 == 0}}] * (row % 3)


def types(text, integer, real, lists):
    call = pa.struct([("function", pa.struct([("name", text), ("arguments", pa.struct([
        ("a", integer), ("b", lists(real))]))]))])
    own = pa.struct([("role", text), ("content", text), ("train", pa.bool_()), ("weight", integer),
                     ("tool_calls", lists(call)), ("unused", pa.timestamp("ns"))])
    tool = pa.struct([("type", text), ("function", pa.struct([("name", text), ("strict", pa.bool_())]))])
    return lists(own), lists(tool)


def table(text, integer, real, lists):
    of_messages, of_tools = types(text, integer, real, lists)
    return pa.table({
        "tools": pa.array([tools(row) for row in range(ROWS)], of_tools),
        "messages": pa.array([messages(row) for row in range(ROWS)], of_messages),
        "calls": pa.array([json.dumps(tools(row)) for row in range(ROWS)], text),
        "stamps": pa.array([[{"at": row}] for row in range(ROWS)], pa.list_(pa.struct([("at", pa.timestamp("ns"))]))),
    })


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(own) for key, own in value.items() if own is not None}
    return [without_nulls(own) for own in value] if isinstance(value, list) else value


def lines(rows):
    text = [json.dumps(without_nulls(row), ensure_ascii=False, separators=(",", ":")) if row is not None else ""
            for row in rows]
    return "".join(f"{line}\n" for line in text)


def arrow(path, whole, batch_rows, codec=None, new=pa.ipc.new_file):
    with new(path, whole.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for at in range(0, ROWS, batch_rows):
            writer.write_table(whole.slice(at, batch_rows))


def shifted(column):
    """The same lists, with elements before the first offset and under rows that are null."""
    own = column.combine_chunks()
    before = own.slice(0, 4)
    values = pa.concat_arrays([before.flatten(), own.values])
    shift = len(before.flatten())
    offsets = pa.array([offset.as_py() + shift for offset in own.offsets], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=own.is_null())


def conversations(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in range(6):
        talk = [{"role": "user", "content": f"{row} + {row}?", "weight": None},
                {"role": "assistant", "content": f"it is \"{2 * row}\".\n", "weight": [1, 0, None][row % 3]}]
        tool = {"type": "function", "function": {"name": "add", "description": f"sum {row}"}}
        rows.append({"messages": talk * (1 + row % 2), "tools": [tool] * (row % 3) if row % 3 else None})
    whole = datasets.Dataset.from_list(rows)
    whole.to_parquet(folder / "structs.parquet", write_statistics=False)
    (folder / "lines.jsonl").write_text(lines(rows))
    texts = [None if row["tools"] is None else [json.dumps(tool) for tool in row["tools"]] for row in rows]
    stream = whole.data.table.combine_chunks().set_column(1, "tools", pa.array(texts, pa.list_(pa.string())))
    with pa.ipc.new_stream(folder / "texts.arrow", stream.schema.remove_metadata()) as writer:
        writer.write_table(stream.replace_schema_metadata())


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    conversations(pathlib.Path(sys.argv[2]))
    (folder / "messages.jsonl").write_text(lines(messages(row) for row in range(ROWS)))
    (folder / "tools.jsonl").write_text(lines(tools(row) for row in range(ROWS)))
    strings = table(pa.string(), pa.int64(), pa.float64(), pa.list_)
    large = table(pa.large_string(), pa.uint32(), pa.float32(), pa.large_list)
    views = table(pa.string_view(), pa.int16(), pa.float64(), pa.list_)
    alone = strings.select(["messages"])
    pq.write_table(alone, folder / "pages-1.parquet", compression="snappy", data_page_size=64, write_batch_size=6,
                   row_group_size=9, write_statistics=False, store_schema=False)
    pq.write_table(strings, folder / "pages-2.parquet", compression="zstd", data_page_version="2.0",
                   use_dictionary=False, write_statistics=False, store_schema=False, column_encoding={
                       "messages.list.element.content": "DELTA_BYTE_ARRAY",
                       "messages.list.element.weight": "DELTA_BINARY_PACKED"})
    arrow(folder / "strings.arrow", alone, 8, "zstd")
    arrow(folder / "large.arrow", large.select(["messages"]), 12, "lz4")
    arrow(folder / "views.arrows", views, 12, "zstd", pa.ipc.new_stream)
    moved = pa.table({"messages": shifted(strings["messages"])})
    arrow(folder / "shifted.arrow", moved, 12, "zstd")


main()
