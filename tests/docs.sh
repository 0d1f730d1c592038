#!/usr/bin/env bash
# Runs the commands that the documentation shows. Each block of `sh` must follow a line that says what to do with it here:
# `<!-- ci: run -->`, `<!-- ci: run, with the sandbox -->` or `<!-- ci: skip, REASON -->`. A block runs in the repository's
# root and must succeed. The sandbox that some talk to runs as README.md starts it. `cargo run` means the program that
# `cargo test` has built: without its feature, half of the dependencies would be built a second time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pages=("$@")
[ $# -gt 0 ] || pages=(README.md ARCHITECTURE.md docs/*.md deploy/helm/icewright/README.md)
work=$(mktemp -d)
sandbox=
cargo() { command cargo "$1" --features testing "${@:2}"; }
export -f cargo
finish() {
    [ -z "$sandbox" ] || kill "$sandbox" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Writes runnable blocks to $work/KIND/NUMBER.sh; complains about blocks that nothing is said about.
mkdir "$work/alone" "$work/beside"
awk -v work="$work" '
    FNR == 1 { said = "" }
    /^```sh *$/ {
        kind = ""
        if (said ~ /^<!-- ci: run -->$/) kind = "alone"
        else if (said ~ /^<!-- ci: run, with the sandbox -->$/) kind = "beside"
        else if (said !~ /^<!-- ci: skip, .+ -->$/) {
            printf "%s:%d: no <!-- ci: run --> or <!-- ci: skip, REASON --> before this block\n", FILENAME, FNR
            bad = 1
        }
        file = sprintf("%s/%s/%05d.sh", work, kind, ++blocks)
        if (kind) print "# " FILENAME ", block after line " FNR > file
        inside = 1
        next
    }
    /^```/ { inside = 0; next }
    inside { if (kind) print > file; next }
    NF { said = $0 }
    END { exit bad }
' "${pages[@]}"

ran=0
run_all() {
    local script
    for script in "$work/$1"/*.sh; do
        [ -e "$script" ] || break
        sed '1s/^# /--- /; 1!s/^/    /' "$script"
        bash -euo pipefail "$script"
        ran=$((ran + 1))
    done
}
run_all alone
if [ -n "$(ls "$work/beside")" ]; then
    cargo build --locked
    # Not the function: a signal to it would not reach the program.
    command cargo run --features testing --locked -- sandbox >"$work/sandbox.log" 2>&1 &
    sandbox=$!
    for _ in $(seq 300); do
        kill -0 "$sandbox" 2>/dev/null || break
        tables=$(curl -sf http://127.0.0.1:9091/api/v1/tables) && [[ $tables == *sandbox.shop.orders* ]] && break
        sleep 0.2
    done
    kill -0 "$sandbox" || { cat "$work/sandbox.log"; exit 1; }
    run_all beside
    kill "$sandbox"
    wait "$sandbox" || { cat "$work/sandbox.log"; exit 1; }
    sandbox=
fi
[ "$ran" -gt 0 ] || { echo "${pages[*]}: no block is marked to run" >&2; exit 1; }
echo "$ran blocks ran"
