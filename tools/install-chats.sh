#!/bin/sh
# Chat templates of published models, and what transformers makes of conversations under each, for the test of crate `data` that
# PLEACH_CHATS names. The templates are those of a wheel, so that no host but the registry of wheels is asked. Needs Python 3 with
# venv and pip. It prints the folder.
set -eu
cd "$(dirname "$0")/.."

folder=target/chats
# Texts are those of these versions.
wheels="transformers==5.24.0 jinja2==3.1.6"
templates="trl==1.16.0"
if [ "$(cat "$folder/installed" 2> /dev/null)" != "$wheels $templates" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder/python"
    # shellcheck disable=SC2086
    "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check $wheels
    # Of the second wheel only files are read.
    "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder/wheel" "$templates"
    "$folder/python/bin/python" tools/reference/chat.py "$folder/wheel/trl/chat_templates" "$folder"
    printf '%s' "$wheels $templates" > "$folder/installed"
fi
echo "$PWD/$folder"
