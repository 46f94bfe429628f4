#!/bin/sh
# Searches for lost wakes, data races and undefined behaviour in the parts that threads share: `models`, `miri`, `tsan` or
# `drd`.
#
# models: inbox, tickets, pools and streams in thousands of orders of their threads, drawn by shuttle.
# miri: the interpreter of rustc's mid-level code, with many seeds for the order of threads and for weak memory. Needs a
#       nightly toolchain with `rustup component add miri rust-src --toolchain nightly`.
# tsan: ThreadSanitizer, with a standard library compiled for it. Needs the same nightly toolchain.
# drd:  Valgrind's detector, on the kernels without vector instructions. Needs valgrind. Locks of Rust's standard library are
#       futexes, which drd does not know: it is run with their frames suppressed, so it sees races outside of locks only.
set -eu
cd "$(dirname "$0")/.."

seeds=${2:-8}
case "${1:-}" in
models)
    export CARGO_TARGET_DIR=target/models RUSTFLAGS="--cfg shuttle"
    for package in comm cpu device; do cargo test -p "$package" --lib models; done
    ;;
miri)
    export CARGO_TARGET_DIR=target/miri MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..$seeds"
    cargo +nightly miri test -p sync
    cargo +nightly miri test -p device --lib queue
    # Worlds of sixteen ranks and of thousands of calls take hours in an interpreter.
    cargo +nightly miri test -p comm --test transports -- over_threads \
        --skip sixteen --skip large --skip any_length --skip jitter --skip deadline
    ;;
tsan)
    export CARGO_TARGET_DIR=target/tsan RUSTFLAGS=-Zsanitizer=thread RUSTDOCFLAGS=-Zsanitizer=thread
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo +nightly test -Zbuild-std --target "$host" -p sync
    cargo +nightly test -Zbuild-std --target "$host" -p device --lib queue
    cargo +nightly test -Zbuild-std --target "$host" -p comm --test transports -- over_threads --skip deadline
    cargo +nightly test -Zbuild-std --target "$host" -p cpu --test threads
    ;;
drd)
    cargo test --no-run -p comm --test transports
    program=$(cargo test --no-run -p comm --test transports 2>&1 | sed -n 's/.*(\(.*transports-[0-9a-f]*\)).*/\1/p')
    valgrind --tool=drd --error-exitcode=9 --suppressions=tools/drd.supp "$program" over_threads --test-threads=1 \
        --skip deadline --skip sixteen
    ;;
*)
    echo "usage: tools/check-threads.sh models|miri|tsan|drd [SEEDS]" >&2
    exit 2
    ;;
esac
