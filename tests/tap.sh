#!/bin/bash
# Runs a cmocka program and mends its TAP: cmocka 1.1.5 writes a skipped test as "not ok", and
# what a test prints must not be read as TAP.
set -o pipefail
"$@" | sed -u -e 's/^not ok \([0-9]* # SKIP\)/ok \1/' -e '/^\(ok \|not ok \|[0-9]*\.\.[0-9]\|#\)/!s/^/# /'
