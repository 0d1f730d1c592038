#!/usr/bin/env bash
# Makes what follows from other files below deploy/: the chart's copies of rules and dashboards, the table of values in
# its README.md, and the plain manifests. With --check it only shows what is not up to date, and fails then.
# Needs helm: that of tests/interop/setup.sh, or $HELM.
set -euo pipefail
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
interop=${ICEWRIGHT_INTEROP_DIR:-${CARGO_TARGET_DIR:-$deploy/../target}/interop}
helm=${HELM:-$interop/kube/bin/helm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$deploy" "$work/deploy"
chart=$work/deploy/helm/icewright

# A chart holds no files from outside its folder.
copy() {
    local from=$1 pattern=$2 file
    rm -rf "$chart/files/$from"
    for file in "$deploy/$from"/$pattern; do
        [ ! -e "$file" ] || install -Dm644 "$file" "$chart/files/$from/${file##*/}"
    done
}
copy prometheus '*.rules.yaml'
copy grafana '*.json'

# One row for each value: its path, default, and the comment above it that begins with `# --`.
values_table() {
    awk '
        /^ *# -- / { sub(/^ *# -- /, ""); comment = $0; next }
        /^ *# / && comment != "" { sub(/^ *# /, ""); comment = comment " " $0; next }
        /^ *[A-Za-z]+:/ {
            match($0, /^ */); depth = RLENGTH / 2
            key = $0; sub(/^ */, "", key); sub(/:.*/, "", key)
            value = $0; sub(/^ *[A-Za-z]+: */, "", value)
            path[depth] = key
            if (value == "") { comment = ""; next }
            name = path[0]; for (i = 1; i <= depth; i++) name = name "." path[i]
            printf "| `%s` | `%s` | %s |\n", name, value, comment
            comment = ""
            next
        }
        { comment = "" }
    ' "$chart/values.yaml"
}
{
    sed '/^<!-- values -->$/q' "$deploy/helm/icewright/README.md"
    echo
    echo "| value | default | meaning |"
    echo "|---|---|---|"
    values_table
    echo
    sed -n '/^<!-- \/values -->$/,$p' "$deploy/helm/icewright/README.md"
} >"$chart/README.md"

# The manifests of a release named icewright, without what only Helm needs.
for template in serviceaccount configmap service deployment; do
    {
        echo "# Made by deploy/generate.sh from deploy/helm/icewright and its ci/plain-values.yaml."
        "$helm" template icewright "$chart" --values "$chart/ci/plain-values.yaml" --show-only "templates/$template.yaml" |
            sed -e '/^---$/d' -e '/^# Source: /d' -e '/helm.sh\/chart: /d' -e '/managed-by: Helm$/d' -e 's/ *$//' |
            cat -s | sed '${/^$/d}'
    } >"$work/deploy/kubernetes/$template.yaml"
done

if [ "${1:-}" = --check ]; then
    if ! diff -ru "$deploy" "$work/deploy"; then
        echo "not up to date: run deploy/generate.sh" >&2
        exit 1
    fi
else
    cp -r "$work/deploy/kubernetes/." "$deploy/kubernetes/"
    rm -rf "$deploy/helm/icewright/files"
    cp -r "$chart/." "$deploy/helm/icewright/"
fi
