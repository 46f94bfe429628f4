#!/bin/sh
# Prints each test as a line: crate, test program, name. Two lists show which tests a change moves, adds or removes.
set -eu
cd "$(dirname "$0")/.."

cargo test --workspace --locked --no-run --message-format=json | python3 -c '
import json, subprocess, sys

for built in map(json.loads, sys.stdin):
    if built.get("executable") and built["profile"]["test"]:
        crate, program = built["package_id"].split("/")[-1].split("#")[0], built["target"]["name"]
        listed = subprocess.run([built["executable"], "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for name in (line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")):
            print(crate, program, name)
' | sort
