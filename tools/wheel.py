"""Makes a wheel of the built program and the module in `python`: python tools/wheel.py PROGRAM FOLDER

Prints the name of the wheel in FOLDER. Needs no package. The wheel is for this machine's processor and for the oldest C library of GNU that
has all symbols that the program uses (PEP 600).
"""

import base64
import hashlib
import platform
import re
import sys
import tomllib
import zipfile
from pathlib import Path

NAME = "pleach_lm"
ROOT = Path(__file__).parent.parent
# The same wheel of the same files: a fixed time, the first that an archive can have.
TIME = (1980, 1, 1, 0, 0, 0)


def platform_tag(program):
    """`manylinux_2_34_x86_64`: the largest version that the names of the program's symbols have."""
    versions = [tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_([0-9]+\.[0-9]+)", program)]
    if not versions:
        raise SystemExit("the program uses no C library of GNU; wheels are described for Linux with one only")
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def metadata(version):
    return (
        f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {version}\n"
        "Summary: Trains large language models with data, tensor and pipeline parallelism\n"
        "License: MIT OR Apache-2.0\nRequires-Python: >=3.11\nRequires-Dist: numpy\n"
        "Provides-Extra: hashes\nRequires-Dist: xxhash; extra == 'hashes'\n"
        "Description-Content-Type: text/markdown\n\n" + (ROOT / "python/README.md").read_text(encoding="utf-8")
    )


def main():
    program, folder = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    tag = f"py3-none-{platform_tag(program)}"
    info, data = f"{NAME}-{version}.dist-info", f"{NAME}-{version}.data"
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((ROOT / "python" / NAME).glob("*.py"))}
    files[f"{data}/scripts/pleach"] = program
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: pleach\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    for license in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{info}/licenses/{license}"] = (ROOT / license).read_bytes()
    digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = folder / f"{NAME}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith("scripts/pleach") else 0o100644) << 16
            archive.writestr(entry, content)
    print(wheel)


main()
