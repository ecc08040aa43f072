#!/bin/sh
# No machine learning: counts what failed in a web server's log (JSON lines, plain or
# compressed), by path, most often first.
#
#     examples/shell/count_web_log.sh [LOG [EXPRESSION [FIELD]]]
#
# Without LOG a log of 100,000 requests is made first. The filter runs in native threads;
# only what passes is printed.
set -eu

log=${1:-} expression=${2:-status >= 500} field=${3:-path}
if [ -z "$log" ]; then
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    log=$folder/access.jsonl.gz
    awk 'BEGIN {
        split("/ /login /api/orders /api/items /img/logo.png", path, " ")
        for (i = 0; i < 100000; i++) {
            draw = (i * 7919) % 1000
            status = draw < 20 ? 500 + draw % 4 : 200
            printf "{\"time\": %d, \"status\": %d, \"path\": \"%s\", \"ms\": %d}\n",
                1700000000 + i, status, path[1 + (draw * draw) % 5], draw
        }
    }' | gzip -1 > "$log"
fi

squirrel cat "$log" --where "$expression" --select "$field" | sort | uniq -c | sort -rn
