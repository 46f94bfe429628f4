#!/bin/sh
# moto, whose server speaks the protocol of S3, for the tests of checkpoints and text in stores. Needs Python 3 with venv and
# pip. It prints the folder, which PLEACH_S3 names.
set -eu
cd "$(dirname "$0")/.."

folder=target/moto
version=5.2.5
if ! "$folder/bin/python" -c "import moto, sys; sys.exit(moto.__version__ != '$version')" 2> /dev/null; then
    python3 -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "moto[s3,server]==$version"
fi
echo "$PWD/$folder"
