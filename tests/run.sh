#!/usr/bin/env bash
# Runs all tests, after installing what the interop tests need. Arguments go to `cargo test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests/interop/setup.sh
exec cargo test --locked "$@"
