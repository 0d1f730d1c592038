#!/usr/bin/env python3
"""Draws what runs do to the number of files of a table, from the daemon's own metrics.

    cargo run -- sandbox --for 2m &
    python3 docs/draw_run.py record docs/run.csv        # one line a second, until the daemon is gone
    python3 docs/draw_run.py draw docs/run.csv docs/run.svg

Needs nothing but Python 3. `record` takes --url and --table for other daemons and tables.
"""

import argparse
import csv
import re
import time
import urllib.request

# Columns of the recording beside `seconds`, each a sum over series: metric, and labels that must be there.
COLUMNS = {
    "data_files": ("icewright_table_data_files", {}),
    "delete_files": ("icewright_table_delete_files", {}),
    "manifests": ("icewright_table_manifests", {}),
    "snapshots": ("icewright_table_snapshots", {}),
    "all_files": ("icewright_table_all_files", {}),
    "compactions": ("icewright_runs_total", {"action": "rewrite-data-files", "outcome": "success"}),
}
# What is drawn, from the bottom up: column, legend, colour that shows on white and on black.
AREAS = [
    ("data_files", "data files", "#3b82c4"),
    ("delete_files", "delete files", "#d9822b"),
    ("manifests", "manifests", "#8a8f98"),
]
WIDTH, HEIGHT = 760, 330
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 72, 48
SERIES = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def row(text, table):
    """The columns' values in an answer of /metrics."""
    values = dict.fromkeys(COLUMNS, 0)
    for line in text.splitlines():
        match = SERIES.match(line)
        if not match:
            continue
        labels = dict(LABEL.findall(match[2]))
        if ".".join(labels.get(k, "") for k in ("catalog", "namespace", "table")) != table:
            continue
        for column, (metric, wanted) in COLUMNS.items():
            if match[1] == metric and wanted.items() <= labels.items():
                values[column] += int(float(match[3]))
    return values


def record(path, url, table):
    """Asks once a second; waits for the daemon to come, and ends when it has gone."""
    begin = None
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, ["seconds", *COLUMNS], lineterminator="\n")
        out.writeheader()
        while True:
            try:
                text = urllib.request.urlopen(url, timeout=5).read().decode()
            except OSError as error:
                refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
                if refused and begin is not None:
                    return
                time.sleep(1)
                continue
            begin = begin or time.monotonic()
            out.writerow({"seconds": f"{time.monotonic() - begin:.1f}", **row(text, table)})
            file.flush()
            time.sleep(1)


def nice_step(span, count):
    """A round distance between marks, so that about `count` fit."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if span / (factor * power) <= count:
                return factor * power
        power *= 10


def draw(source, target):
    with open(source, newline="") as file:
        rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(file)]
    end = rows[-1]["seconds"]
    top = max(sum(r[column] for column, _, _ in AREAS) for r in rows)
    y_step, x_step = nice_step(top, 6), nice_step(end, 10)
    y_max = -(-top // y_step) * y_step
    x = lambda seconds: LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
    y = lambda files: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * files / y_max
    text = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>'.format
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title"'
        ' font-family="system-ui, sans-serif" font-size="12" fill="#7d8590">',
        '<title id="title">Number of data files, delete files and manifests of a table while it is written and compacted</title>',
        text(LEFT, 22, "start", ' font-size="15" font-weight="600"', "Files that a query on the table has to open"),
    ]
    at = LEFT
    for _, name, colour in AREAS:
        out.append(f'<rect x="{at:.1f}" y="36" width="11" height="11" rx="2" fill="{colour}"/>')
        out.append(text(at + 17, 46, "start", "", name))
        at += 38 + 6.2 * len(name)
    out.append(f'<path d="M{at + 1:.1f} 37h9l-4.5 9z"/>')
    out.append(text(at + 17, 46, "start", "", "compaction committed"))

    files = 0
    while files <= y_max:
        out.append(f'<path d="M{LEFT} {y(files):.1f}H{WIDTH - RIGHT}" stroke="#7d8590" stroke-opacity=".25"/>')
        out.append(text(LEFT - 8, y(files) + 4, "end", "", files))
        files += y_step
    seconds = 0
    while seconds <= end:
        out.append(text(x(seconds), HEIGHT - BOTTOM + 18, "middle", "", seconds))
        seconds += x_step
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle", "", "seconds since start"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(text(14, middle, "middle", f' transform="rotate(-90 14 {middle:.1f})"', "files"))

    # Steps, not slopes: a count holds until it is seen to have changed.
    floor = [0.0] * len(rows)
    for column, _, colour in AREAS:
        ceiling = [low + r[column] for low, r in zip(floor, rows)]
        out.append(f'<path d="{steps(rows, ceiling, x, y)}L{steps(rows, floor, x, y, True)[1:]}Z" fill="{colour}"/>')
        floor = ceiling
    for before, after in zip(rows, rows[1:]):
        if after["compactions"] > before["compactions"]:
            out.append(f'<path d="M{x(after["seconds"]) - 4.5:.1f} {TOP - 12}h9l-4.5 9z"/>')
    out.append("</svg>")
    with open(target, "w") as file:
        file.write("\n".join(out) + "\n")


def steps(rows, values, x, y, backwards=False):
    """A path along steps; vertical moves only where the value changes."""
    points = [(rows[0]["seconds"], values[0])]
    for r, value in zip(rows[1:], values[1:]):
        if value != points[-1][1]:
            points += [(r["seconds"], points[-1][1]), (r["seconds"], value)]
    points.append((rows[-1]["seconds"], values[-1]))
    if backwards:
        points.reverse()
    return "M" + "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in points)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record")
    command.add_argument("csv")
    command.add_argument("--url", default="http://127.0.0.1:9091/metrics")
    command.add_argument("--table", default="sandbox.shop.orders")
    command = commands.add_parser("draw")
    command.add_argument("csv")
    command.add_argument("svg")
    arguments = parser.parse_args()
    if arguments.command == "record":
        record(arguments.csv, arguments.url, arguments.table)
    else:
        draw(arguments.csv, arguments.svg)


if __name__ == "__main__":
    main()
