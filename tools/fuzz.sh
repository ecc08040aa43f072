#!/bin/sh
# Runs every libFuzzer target for FUZZ_SECONDS (60) on its corpus; new inputs stay in build-fuzz.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=true \
    -Db_sanitize=address,undefined -Db_lundef=false
ninja -C build-fuzz
for target in build-fuzz/tests/fuzz/libfuzzer_*; do
    case $target in *.p) continue ;; esac
    name=${target##*libfuzzer_}
    mkdir -p "build-fuzz/found/$name"
    echo "fuzzing $name"
    "$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=2048 -print_final_stats=0 \
        "build-fuzz/found/$name" "tests/fuzz/corpus/$name"
done
