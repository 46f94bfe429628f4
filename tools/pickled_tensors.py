"""Reads the tensors of files that `torch.save` wrote, with Python's standard library alone.

Both forms are read: an archive (`data.pkl` and a file for each storage, since PyTorch 1.6) and the stream of pickles before it. Classes other
than those of tensors become empty objects, so a file runs no code.
"""

import collections
import math
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator

# Of each storage class of PyTorch: the name of its elements in safetensors, and their bytes.
ELEMENTS = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}
MAGIC = 0x1950A86A20F9469CFC6C


class Inert:
    """Stands for an object of a class that is not read."""

    def __new__(cls, *_: object, **__: object) -> "Inert":
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass

    def __setitem__(self, _: object, __: object) -> None:
        pass

    def append(self, _: object) -> None:
        pass

    def extend(self, _: object) -> None:
        pass


class Storage:
    """The elements that tensors are views of; `read` returns bytes from the file."""

    def __init__(self, kind: str, read: Callable[[int, int], bytes]) -> None:
        if kind not in ELEMENTS:
            raise SystemExit(f"a storage must be one of {', '.join(ELEMENTS)}; got {kind}")
        self.dtype, self.width = ELEMENTS[kind]
        self.read = read


class Tensor:
    """A view of a storage: shape and strides in elements."""

    def __init__(self, storage: Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.storage, self.offset, self.shape, self.stride = storage, offset, tuple(shape), tuple(stride)
        self.dtype = storage.dtype

    def bytes(self) -> bytes:
        """The elements in row-major order."""
        width, count = self.storage.width, math.prod(self.shape)
        if count == 0:
            return b""
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.stride))
        data = self.storage.read(self.offset * width, (last + 1) * width)
        if last + 1 == count and self.stride == row_major(self.shape, self.stride):
            return data
        return b"".join(data[at * width : (at + 1) * width] for at in positions(self.shape, self.stride))


def row_major(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of row-major order; those of dims of one index do not matter and stay."""
    steps, step = [], 1
    for extent, own in zip(reversed(shape), reversed(stride)):
        steps.append(own if extent == 1 else step)
        step *= extent
    return tuple(reversed(steps))


def positions(shape: tuple[int, ...], stride: tuple[int, ...]) -> Iterator[int]:
    """Of each element in row-major order, its position in the storage."""
    if not shape:
        yield 0
        return
    for index in range(shape[0]):
        for rest in positions(shape[1:], stride[1:]):
            yield index * stride[0] + rest


def rebuilt(storage: Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object) -> Tensor:
    return Tensor(storage, offset, shape, stride)


class Unpickler(pickle.Unpickler):
    """Knows dictionaries and tensors; `storage` makes a storage of its class, key and number of elements."""

    def __init__(self, file: object, storage: Callable[..., Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storage = storage

    def find_class(self, module: str, name: str) -> object:
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return name
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): rebuilt,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        return known.get((module, name), Inert)

    def persistent_load(self, pid: tuple) -> Storage:
        kind, storage, key, _, count, *view = pid
        if kind != "storage" or any(part is not None for part in view):
            raise SystemExit(f"an object outside the pickle must be a storage; got {pid}")
        return self.storage(storage, key, count)


def read_archive(path: pathlib.Path) -> object:
    archive = zipfile.ZipFile(path)
    entry = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
    folder = entry.removesuffix("data.pkl")
    order = f"{folder}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise SystemExit(f"{path} must be little-endian")

    def storage(kind: str, key: str, _: int) -> Storage:
        def read(start: int, length: int) -> bytes:
            with archive.open(f"{folder}data/{key}") as data:
                data.seek(start)
                return data.read(length)

        return Storage(kind, read)

    return Unpickler(archive.open(entry), storage).load()


def read_stream(path: pathlib.Path) -> object:
    """Magic number, version, facts of the machine, the object, the keys of its storages; then each storage: its length and its elements."""
    file = open(path, "rb")
    starts: dict[str, int] = {}
    widths: dict[str, int] = {}

    def storage(kind: str, key: str, _: int) -> Storage:
        def read(start: int, length: int) -> bytes:
            file.seek(starts[key] + start)
            return file.read(length)

        made = Storage(kind, read)
        widths[key] = made.width
        return made

    def load() -> object:
        return Unpickler(file, storage).load()

    if load() != MAGIC:
        raise SystemExit(f"{path} must be a file of torch.save")
    load()
    machine = load()
    if isinstance(machine, dict) and not machine.get("little_endian", True):
        raise SystemExit(f"{path} must be little-endian")
    value = load()
    for key in load():
        (count,) = struct.unpack("<q", file.read(8))
        starts[key] = file.tell()
        file.seek(count * widths[key], 1)
    return value


def read(path: pathlib.Path) -> object:
    """The saved value, with `Tensor` for tensors. Elements are read from the file when they are asked for."""
    return read_archive(path) if zipfile.is_zipfile(path) else read_stream(path)
