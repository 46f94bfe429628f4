#!/bin/sh
# Searches for lost wakes, data races and undefined behaviour in the parts that threads share: `models`, `faults`, `miri`
# or `tsan`.
#
# models: inbox, tickets, pools and streams in thousands of orders of their threads, drawn by shuttle.
# faults: faults such as a wake that is left out, put in one after the other: a model must fail for each.
# miri: the interpreter of rustc's mid-level code, with many seeds for the order of threads and for weak memory. Needs a
#       nightly toolchain with `rustup component add miri rust-src --toolchain nightly`.
# tsan: ThreadSanitizer, with a standard library compiled for it. Needs the same nightly toolchain.
set -eu
cd "$(dirname "$0")/.."

seeds=${2:-8}
case "${1:-}" in
models)
    export CARGO_TARGET_DIR=target/models RUSTFLAGS="--cfg shuttle"
    for package in blame comm cpu device; do cargo test -p "$package" --lib models; done
    ;;
faults)
    # Each fault is put into a copy of the tree, where its model must fail.
    copy=target/models-with-faults
    not_found=0
    mkdir -p "$copy"
    export CARGO_TARGET_DIR="$PWD/target/models" RUSTFLAGS="--cfg shuttle"
    git ls-files -z | xargs -0 cp --parents -t "$copy"
    # Package, file, and the edit of sed that is the fault.
    with_fault() {
        sed "$3" "$2" > "$copy/$2"
        if cmp -s "$copy/$2" "$2"; then echo "$2: $3 changes nothing" >&2; exit 1; fi
        (cd "$copy" && cargo test --no-run -p "$1" --lib)
        if (cd "$copy" && cargo test -p "$1" --lib models) > target/fault.txt 2>&1; then
            echo "$1: no model finds $3 in $2"
            not_found=$((not_found + 1))
        else
            echo "$1: found $3"
        fi
        # The new time makes cargo compile it again.
        cat "$2" > "$copy/$2"
    }
    with_fault blame crates/training/blame/src/entry_words.rs 's/    entry.store(word(field::NUMBER), 0, Ordering::Relaxed);//'
    with_fault blame crates/training/blame/src/entry_words.rs 's/number(before) == number(after)/true/'
    with_fault comm crates/network/comm/src/threads/inbox.rs 's/None => self.changed.notify_one(),/None => {}/'
    with_fault comm crates/network/comm/src/threads/inbox.rs 's/self.changed.notify_all();//'
    with_fault comm crates/network/comm/src/threads/shared_memory.rs 's/self.0.owner.wake_from_completion();//'
    with_fault comm crates/network/comm/src/threads/shared_memory.rs 's/if self.0.open.fetch_sub(1, Ordering::Release) == 1/if false/'
    with_fault comm crates/network/comm/src/processes/pieces.rs 's/self.pieces.wake_first();//'
    with_fault cpu crates/kernels/cpu/src/pool.rs 's/sleepers if sleepers <= threads => self.opened.notify_all(),/1 => {}/'
    with_fault cpu crates/kernels/cpu/src/pool.rs 's/if state.is_owner_asleep {/if false {/'
    with_fault cpu crates/kernels/cpu/src/pool.rs 's/if state.running == 0 {/if false {/'
    with_fault device crates/step/device/src/queue.rs 's/self.ended.notify_all();//'
    rm -r "$copy"
    if [ "$not_found" != 0 ]; then echo "$not_found faults are not found" >&2; exit 1; fi
    ;;
miri)
    export CARGO_TARGET_DIR=target/miri MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..$seeds"
    cargo +nightly miri test -p sync
    cargo +nightly miri test -p blame --lib entry_words
    cargo +nightly miri test -p device
    # Worlds of sixteen ranks and of thousands of calls take hours in an interpreter.
    cargo +nightly miri test -p comm --test suite -- over_threads \
        --skip sixteen --skip large --skip any_ --skip every_ --skip counted --skip runs --skip jitter --skip deadline
    # Of the sums in runs one test is short enough; the filter above skips it by its name.
    cargo +nightly miri test -p comm --test suite -- over_threads::one_run_and_runs_of_one_are_rank_order
    ;;
tsan)
    export CARGO_TARGET_DIR=target/tsan RUSTFLAGS=-Zsanitizer=thread RUSTDOCFLAGS=-Zsanitizer=thread
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo +nightly test -Zbuild-std --target "$host" -p sync
    cargo +nightly test -Zbuild-std --target "$host" -p blame --lib entry_words
    cargo +nightly test -Zbuild-std --target "$host" -p device --lib queue
    cargo +nightly test -Zbuild-std --target "$host" -p comm --test suite -- over_threads --skip deadline
    PLEACH_PORTABLE_KERNELS=1 cargo +nightly test -Zbuild-std --target "$host" -p cpu --test suite threads::
    ;;
*)
    echo "usage: tools/check-threads.sh models|faults|miri|tsan [SEEDS]" >&2
    exit 2
    ;;
esac
