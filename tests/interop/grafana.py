"""Reads dashboards by Grafana's own models: whatever they do not know does not survive, and is printed."""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

# Settings that the data source or a newer version reads, and the models leave out.
FREE = {"annotations": {"titleFormat", "textFormat", "tagKeys", "step", "useValueForTime"}}
UNITS = {value for name, value in vars(units).items() if not name.startswith("_") and isinstance(value, str)}


def lost(written, read, path):
    """What of `written` is missing or different in `read`."""
    if isinstance(written, dict) and isinstance(read, dict):
        free = FREE.get(path[0] if path else "", set())
        for key, value in written.items():
            if key not in free and value is not None:
                yield from lost(value, read[key], [*path, key]) if key in read else [(path, key)]
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for i, (a, b) in enumerate(zip(written, read)):
            yield from lost(a, b, [*path, str(i)])
    elif written != read:
        yield path, f"{written!r} became {read!r}"


def unknown_units(node, path):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "unit" and value not in UNITS:
                yield path, f"unknown unit {value!r}"
            yield from unknown_units(value, [*path, key])
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from unknown_units(value, [*path, str(i)])


def main():
    register_default_plugins()
    failed = False
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            written = json.load(file)
        read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
        for path, problem in [*lost(written, read, []), *unknown_units(written, [])]:
            failed = True
            print(f"{name}: {'.'.join(path)}: {problem}")
    sys.exit(1 if failed else 0)


main()
