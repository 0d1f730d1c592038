#!/usr/bin/env bash
# Runs the commands that README.md shows. Each block of `sh` must follow a line that says what to do with it here:
# `<!-- ci: run -->`, or `<!-- ci: skip, REASON -->`. A block runs in the repository's root and must succeed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readme=${1:-README.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Writes runnable blocks to $work/LINE.sh; complains about blocks that nothing is said about.
awk -v work="$work" '
    /^```sh *$/ {
        inside = 1
        run = said ~ /^<!-- ci: run -->$/
        if (!run && said !~ /^<!-- ci: skip, .+ -->$/) {
            printf "%s:%d: no <!-- ci: run --> or <!-- ci: skip, REASON --> before this block\n", FILENAME, FNR
            bad = 1
        }
        file = sprintf("%s/%05d.sh", work, FNR)
        next
    }
    /^```/ { inside = 0; next }
    inside { if (run) print > file; next }
    NF { said = $0 }
    END { exit bad }
' "$readme"

ran=0
for script in "$work"/*.sh; do
    [ -e "$script" ] || break
    echo "--- $readme, block after line $((10#$(basename "$script" .sh)))"
    sed 's/^/    /' "$script"
    bash -euo pipefail "$script"
    ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || { echo "$readme: no block is marked to run" >&2; exit 1; }
echo "$readme: $ran blocks ran"
