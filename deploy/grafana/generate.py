#!/usr/bin/env python3
"""Writes fleet.json and table.json beside this file, or into the folder that is named. A test runs it and compares."""

import json
import pathlib
import sys

from parts import (BLUE, PROCESS, RED, TABLE, TABLE_NAME, YELLOW, annotation, dashboard, lines, link, mapping,
                   panel, per_table, query, stat, thresholds, worst)

FAILURES = 'outcome=~"failed|conflict|unknown"'
STEPS = ("idle", "rewrite-data-files", "delay", "expire-snapshots", "remove-orphan-files")
# What the figure of a table counts, in its colours.
FIGURE = [("data files", BLUE), ("delete files", RED), ("manifests", YELLOW)]


def total(metric, by, *matchers, over="$__rate_interval", function="rate", of=PROCESS):
    return f"sum by ({by}) ({function}({metric}{{{','.join([of, *matchers])}}}[{over}]))"


def quantile(metric, by, *matchers, over="$__rate_interval"):
    rate = total(f"{metric}_bucket", f"le, {by}", *matchers, over=over)
    return f"histogram_quantile(0.95, {rate})"


def run_annotations():
    return [annotation("Compaction", "rewrite-data-files", BLUE), annotation("Expiry", "expire-snapshots", YELLOW),
            annotation("Orphan removal", "remove-orphan-files", RED)]


def table_view(title, description, exprs, rename, overrides, sort, join=None):
    """The labels of a query as columns; several queries make columns of their own and are joined by a label."""
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": sort, "desc": True}],
               "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}}
    hidden = {name: True for name in ("Time", "Time 1", "Time 2", "Time 3", "Value", "Value #A")}
    organize = {"id": "organize", "options": {"excludeByName": hidden, "renameByName": rename, "indexByName": {}}}
    joined = [{"id": "joinByField", "options": {"byField": join, "mode": "outer"}}] if join else []
    targets = [query(expr, kind="instant", form="table") for expr in exprs]
    return panel("table", title, description, targets, "short", options, {"align": "auto", "inspect": False},
                 overrides=overrides, transformations=[*joined, organize])


def fleet_overview():
    unhealthy = per_table("icewright_table_unhealthy", by="reason")
    up = mapping([("0", "down", RED), ("1", "up", "green")])
    return ("Overview", (4, [
        (3, stat("Tables", "Tables that are maintained.", f"sum(max by (job, series) (icewright_tables{{{PROCESS}}}))")),
        (3, stat("Unhealthy", "Tables with at least one reason against them; the list below says which. Those beyond "
                 "metrics.max-tables (_other) count once for each catalog.",
                 f"count(count by (catalog, namespace, table) ({unhealthy} >= 1)) or vector(0)",
                 thresholds=thresholds((1, YELLOW)))),
        (3, stat("Paused", "Tables that somebody has paused.",
                 f"sum({per_table('icewright_table_paused')})", thresholds=thresholds((1, YELLOW)))),
        (3, stat("Quarantined", "Tables that contradict the specification and are not compacted.",
                 f"sum({per_table('icewright_table_quarantined')})", thresholds=thresholds((1, RED)))),
        (3, stat("Running", "Tables in work now.", f"sum(icewright_running_tables{{{PROCESS}}})")),
        (3, stat("Longest wait", "How long a due table has been waiting for a worker.",
                 f"max(icewright_oldest_queued_seconds{{{PROCESS}}})", "s", thresholds=thresholds((3600, YELLOW), (21600, RED)))),
        (3, stat("Catalogs", "Whether the last listing of each catalog succeeded.",
                 f"min by (catalog) (icewright_catalog_up{{{PROCESS}}})", legend="{{catalog}}", mappings=up,
                 text="value_and_name", thresholds={"mode": "absolute", "steps": [
                     {"color": RED, "value": None}, {"color": "green", "value": 1}]})),
        (3, stat("Leaders", "Processes that maintain tables; there must be one for each job.",
                 f'sum by (job) (icewright_leader{{{PROCESS},instance!=""}})', legend="{{job}}", text="value_and_name",
                 thresholds={"mode": "absolute", "steps": [
                     {"color": RED, "value": None}, {"color": "green", "value": 1}, {"color": RED, "value": 2}]})),
    ]), (8, [
        (12, lines("Unhealthy tables by reason",
                   "failing: runs fail. refused: the last clean-up left files alone. unreadable: the table cannot be read. "
                   "quarantined: its metadata is invalid. overdue: a due step is not done. small_files and delete_files: "
                   "the table needs compaction now. A table may count for several reasons.",
                   [query(f"sum by (reason) ({unhealthy})", "{{reason}}")], stack=True)),
        (12, table_view("Unhealthy tables", "Each table with each reason against it. Empty is good.",
                        [f"{unhealthy} >= 1"],
                        {"catalog": "Catalog", "namespace": "Namespace", "table": "Table", "reason": "Reason"},
                        [{"matcher": {"id": "byName", "options": "Table"}, "properties": [{"id": "links", "value": [{
                            "title": "Show this table", "targetBlank": False,
                            "url": "/d/icewright-table?${datasource:queryparam}"
                                   "&var-catalog=${__data.fields.Catalog:percentencode}"
                                   "&var-namespace=${__data.fields.Namespace:percentencode}"
                                   "&var-table=${__data.fields.Table:percentencode}"}]}]}],
                        "Reason")),
    ]))


def fleet_work():
    step = per_table("icewright_table_step", by="step")
    return ("Work", (8, [
        (8, lines("Running and waiting", "Tables in work, due tables that wait for a worker, and the number of workers.",
                  [query(f"sum(icewright_running_tables{{{PROCESS}}})", "running"),
                   query(f"sum(icewright_queued_tables{{{PROCESS}}})", "waiting"),
                   query(f"sum(icewright_concurrent_tables_limit{{{PROCESS}}})", "workers")], step=True)),
        (8, lines("Tables by step", "Where the tables are in their round.",
                  [query(f"sum by (step) ({step})", "{{step}}")], stack=True, step=True)),
        (8, lines("Runs", "Runs that ended, by action.",
                  [query(total("icewright_runs_total", "action", function="increase", of=TABLE), "{{action}}")],
                  stack=True, bars=True)),
    ]), (8, [
        (8, lines("Runs that failed",
                  "By outcome. conflict: a writer changed the same files. unknown: the answer to a commit was lost.",
                  [query(total("icewright_runs_total", "action, outcome", FAILURES, function="increase", of=TABLE),
                         "{{action}} {{outcome}}")], stack=True, bars=True)),
        (8, lines("Duration of runs", "95 % of the successful runs of an hour were shorter, over all tables.",
                  [query(quantile("icewright_run_duration_seconds", "action", 'outcome="success"', over="1h"),
                         "{{action}}")], "s")),
        (8, lines("Duration of phases", "95 % of an hour's phases were shorter, over all tables.",
                  [query(quantile("icewright_run_phase_duration_seconds", "action, phase", over="1h"),
                         "{{action}} {{phase}}")], "s")),
    ]))


def fleet_worst():
    # A sum over tables is no table.
    own = 'table!="_other"'
    since = per_table("icewright_last_success_timestamp_seconds", 'action="rewrite-data-files"')
    deletes = f"sum by (catalog, namespace, table) ({per_table('icewright_table_delete_files', own, by='content')})"
    return ("Worst tables", (9, [
        (8, worst("Small data files", "Live data files below the policy's minimum size.",
                  per_table("icewright_table_small_data_files", own), limits=[(500, YELLOW), (10000, RED)])),
        (8, worst("Delete files", "Live delete files of all kinds. Each query reads them.", deletes,
                  limits=[(100, YELLOW), (1000, RED)])),
        (8, worst("Delete files per data file", "How much each data file has to be merged when it is read.",
                  per_table("icewright_table_delete_files_per_data_file"), limits=[(1, YELLOW), (10, RED)])),
    ]), (9, [
        (8, worst("Spread over partitions",
                  "Relative standard deviation of the bytes per partition; below 1 % for well spread buckets.",
                  per_table("icewright_table_partition_bytes_rsd_ratio"), "percentunit",
                  limits=[(0.5, YELLOW), (2, RED)])),
        (8, worst("Orphan bytes", "What the last listing found and no metadata reaches, whatever its age.",
                  per_table("icewright_table_orphan_file_bytes", own), "bytes", limits=[(10e9, YELLOW), (100e9, RED)])),
        (8, worst("Time since compaction", "Since a compaction last succeeded. A table that nobody writes to stays here.",
                  f"time() - {since}", "s", limits=[(86400, YELLOW), (3 * 86400, RED)])),
    ]))


def fleet_throughput():
    return ("Throughput", (8, [
        (8, lines("Compaction", "Bytes of the data files that committed rewrites replaced and added.",
                  [query(f'sum({name})', legend) for name, legend in (
                      (f"rate(icewright_rewritten_bytes_total{{{TABLE}}}[$__rate_interval])", "replaced"),
                      (f"rate(icewright_added_bytes_total{{{TABLE}}}[$__rate_interval])", "added"))], "Bps")),
        (8, lines("Storage", "Bytes read from and written to stores, for whatever purpose.",
                  [query(f"sum(rate(icewright_storage_read_bytes_total{{{PROCESS}}}[$__rate_interval]))", "read"),
                   query(f"sum(rate(icewright_storage_written_bytes_total{{{PROCESS}}}[$__rate_interval]))", "written")],
                  "Bps")),
        (8, lines("Files deleted", "Files deleted from storage by the clean-ups.",
                  [query(total("icewright_deleted_files_total", "action", function="increase", of=TABLE), "{{action}}")],
                  stack=True, bars=True)),
    ]))


def fleet_requests():
    failed = 'outcome!~"ok|not_found|conflict|refused|cancelled"'
    return ("Catalogs and storage", (8, [
        (6, lines("Requests", "Requests to catalogs and stores.",
                  [query(total("icewright_requests_total", "operation"), "{{operation}}")], "reqps", stack=True)),
        (6, lines("Failed requests", "By what went wrong; a file that is not there and a commit that came second are left out.",
                  [query(total("icewright_requests_total", "operation, outcome", failed), "{{operation}} {{outcome}}")],
                  "reqps", stack=True)),
        (6, lines("Retries", "Requests that were sent again.",
                  [query(total("icewright_request_retries_total", "operation"), "{{operation}}")], "reqps", stack=True)),
        (6, lines("Time to answer", "95 % of the requests were answered sooner.",
                  [query(quantile("icewright_request_duration_seconds", "operation"), "{{operation}}")], "s")),
    ]))


def fleet_process():
    return ("Processes", (8, [
        (8, lines("Memory", "The budget of rewrites and what is reserved of it, and what the process really holds.",
                  [query(f"sum by (instance) ({metric}{{{PROCESS}}})", f"{{{{instance}}}} {legend}")
                   for metric, legend in (("icewright_memory_budget_bytes", "budget"),
                                          ("icewright_memory_reserved_bytes", "reserved"),
                                          ("icewright_manifest_cache_bytes", "manifest cache"),
                                          ("process_resident_memory_bytes", "resident"))], "bytes")),
        (8, lines("CPU", "Cores in use.",
                  [query(total("process_cpu_seconds_total", "instance"), "{{instance}}")])),
        (8, table_view("Versions", "What is running, whether it could use its configuration when it last read it, and "
                       "how many warnings it has about it.",
                       [f"max by (instance, version, revision) (icewright_build_info{{{PROCESS}}})",
                        f"max by (instance) (icewright_config_last_load_successful{{{PROCESS}}})",
                        f"max by (instance) (icewright_config_warnings{{{PROCESS}}})"],
                       {"instance": "Instance", "version": "Version", "revision": "Revision",
                        "Value #B": "Configuration", "Value #C": "Warnings"},
                       [{"matcher": {"id": "byName", "options": "Configuration"}, "properties": [
                           {"id": "mappings", "value": mapping([("0", "unusable", RED), ("1", "ok", "green")])}]}],
                       "Instance", join="instance")),
    ]))


def fleet():
    return dashboard(
        "icewright-fleet", "icewright: fleet", "All tables that icewright maintains: which are unhealthy, and why.",
        link("One table", "/d/icewright-table", "external link", keep=True),
        [fleet_overview(), fleet_work(), fleet_worst(), fleet_throughput(), fleet_requests(), fleet_process()],
        run_annotations()[:1])


def table_now():
    since = per_table("icewright_last_success_timestamp_seconds", 'action="rewrite-data-files"')
    left = per_table("icewright_table_delay_end_timestamp_seconds")
    reasons = f"{per_table('icewright_table_unhealthy', by='reason')} >= 1"
    steps = " + ".join(f"{i} * {each}" for i, each in enumerate(
        (per_table("icewright_table_step", f'step="{step}"') for step in STEPS[1:]), 1))
    names = mapping([(str(i), step, color) for i, (step, color) in enumerate(
        zip(STEPS, ("text", BLUE, "light-blue", YELLOW, RED)))])
    timeline = panel(
        "state-timeline", "Step", "Where the table was in its round.", [query(steps, TABLE_NAME)], "short",
        {"showValue": "never", "rowHeight": 0.8, "mergeValues": True, "alignValue": "left",
         "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
         "tooltip": {"mode": "single", "sort": "none"}},
        {"fillOpacity": 80, "lineWidth": 0}, mappings=names)
    return ("Now", (4, [
        (6, stat("Health", "The reasons against the table.", reasons, legend="{{reason}}", text="name", noValue="healthy",
                 kind="instant", thresholds=thresholds((1, YELLOW)))),
        (3, stat("Failures in a row", "Failed runs since the last one that did not fail.",
                 per_table("icewright_table_consecutive_failures"), thresholds=thresholds((1, YELLOW), (3, RED)))),
        (3, stat("Since compaction", "Time since a compaction last succeeded; grows while there is nothing to compact.",
                 f"time() - {since}", "s", kind="instant")),
        (3, stat("Since healthy", "Time since there was last no reason against the table.",
                 f"time() - {per_table('icewright_table_last_healthy_timestamp_seconds')}", "s", kind="instant")),
        (3, stat("Next compaction", "Time until the next one is due; below zero it is waiting for a worker.",
                 f"{per_table('icewright_table_next_run_timestamp_seconds')} - time()", "s", kind="instant")),
        (3, stat("Delay remaining", "Time until the clean-ups may begin; zero outside the delay.",
                 f"clamp_min({left} - time(), 0)", "s", kind="instant")),
        (3, stat("Size", "Bytes of the live data files.", per_table("icewright_table_data_file_bytes"), "bytes")),
    ]), (5, [(24, timeline)]))


def table_files():
    deletes = per_table("icewright_table_delete_files", by="content")
    manifests = per_table("icewright_table_manifests", by="content")
    summed = "sum by (catalog, namespace, table) ({})"
    figure = [per_table("icewright_table_data_files"), summed.format(deletes), summed.format(manifests)]
    return ("Files around the runs", (10, [
        (16, lines("Data files, delete files and manifests",
                   "Files of the current snapshot. They rise while the table is written and fall with each compaction; "
                   "the marks are runs that succeeded.",
                   [query(expr, f"{TABLE_NAME} {name}") for expr, (name, _) in zip(figure, FIGURE)],
                   overrides=[{"matcher": {"id": "byRegexp", "options": f".* {name}$"}, "properties": [
                       {"id": "color", "value": {"mode": "fixed", "fixedColor": color}}]} for name, color in FIGURE])),
        (8, lines("Delete files by content", "position, equality or deletion_vector.",
                  [query(deletes, f"{TABLE_NAME} {{{{content}}}}")])),
    ]), (8, [
        (8, lines("Small data files", "Live data files below the policy's minimum size.",
                  [query(per_table("icewright_table_small_data_files"), TABLE_NAME)])),
        (8, lines("Delete files per data file", "How much each data file has to be merged when it is read.",
                  [query(per_table("icewright_table_delete_files_per_data_file"), TABLE_NAME)])),
        (8, lines("Snapshots", "Retained snapshots.", [query(per_table("icewright_table_snapshots"), TABLE_NAME)])),
    ]))


def table_sizes():
    buckets = f"sum by (le) ({per_table('icewright_table_data_file_size_bytes_bucket', by='le')})"
    heatmap = panel(
        "heatmap", "Sizes of the data files", "Live data files by size; the brighter, the more.",
        [query(buckets, "{{le}}", form="heatmap")], "bytes",
        {"calculate": False, "cellGap": 1, "showValue": "never",
         "yAxis": {"unit": "bytes", "axisPlacement": "left", "reverse": False},
         "cellValues": {"unit": "short"}, "rowsFrame": {"layout": "auto"},
         "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "reverse": False, "fill": "blue"},
         "filterValues": {"le": 0.5}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
         "legend": {"show": True}, "tooltip": {"show": True, "yHistogram": False}},
        {"hideFrom": {"legend": False, "tooltip": False, "viz": False}})
    mean = f"{per_table('icewright_table_data_file_bytes')} / {per_table('icewright_table_data_files')}"
    return ("Sizes and partitions", (9, [
        (12, heatmap),
        (12, lines("Mean size of a data file", "Against the target of the policy.",
                   [query(mean, f"{TABLE_NAME} mean"),
                    query(per_table("icewright_table_target_file_size_bytes"), f"{TABLE_NAME} target")], "bytes")),
    ]), (8, [
        (8, lines("Spread over partitions",
                  "Relative standard deviation per partition; below 1 % for well spread buckets.",
                  [query(per_table("icewright_table_partition_bytes_rsd_ratio"), f"{TABLE_NAME} bytes"),
                   query(per_table("icewright_table_partition_records_rsd_ratio"), f"{TABLE_NAME} records")],
                  "percentunit")),
        (8, lines("Mean size of a partition", "A few MB only say that there are too many buckets.",
                  [query(per_table("icewright_table_partition_bytes_mean"), TABLE_NAME)], "bytes")),
        (8, lines("Partitions", "Partitions with live data files.",
                  [query(per_table("icewright_table_partitions"), TABLE_NAME)])),
    ]))


def table_storage():
    def all_three(unit):
        return [query(per_table(f"icewright_table_{metric}"), f"{TABLE_NAME} {legend}") for metric, legend in unit]
    return ("In storage", (8, [
        (12, lines("Files", "Stored: what the last listing found below the table's directories. Reachable: data and delete "
                   "files of any retained snapshot. Orphans: what no metadata reaches, whatever its age.",
                   all_three([("stored_files", "stored"), ("all_files", "reachable"), ("orphan_files", "orphans")]))),
        (12, lines("Bytes", "The same in bytes.",
                   all_three([("stored_file_bytes", "stored"), ("all_file_bytes", "reachable"),
                              ("orphan_file_bytes", "orphans")]), "bytes")),
    ]))


def table_runs():
    def events(metric, by="", legend="", only=""):
        labels = "catalog, namespace, table" + (f", {by}" if by else "")
        expr = total(metric, labels, function="increase", of=TABLE) + only
        return query(expr, f"{TABLE_NAME} {legend}".strip())
    left = per_table("icewright_table_delay_end_timestamp_seconds")
    return ("Runs", (8, [
        (8, lines("Runs by outcome", "Runs that ended.",
                  [events("icewright_runs_total", "action, outcome", "{{action}} {{outcome}}", " > 0")],
                  stack=True, bars=True)),
        (8, lines("Compaction", "Files that committed rewrites replaced, added, and freed of deletes.",
                  [events("icewright_rewritten_data_files_total", legend="replaced"),
                   events("icewright_added_data_files_total", legend="added"),
                   events("icewright_removed_delete_files_total", legend="delete files removed")], bars=True)),
        (8, lines("Clean-ups", "Files deleted from storage, and snapshots that left the metadata.",
                  [events("icewright_deleted_files_total", "action", "{{action}}"),
                   events("icewright_expired_snapshots_total", legend="snapshots")], bars=True)),
    ]), (8, [
        (8, lines("Conflicts and lost answers", "Commits that were refused since the table had changed, and commits whose "
                  "answer was lost. Most settle themselves.",
                  [events("icewright_commit_conflicts_total", legend="conflicts"),
                   events("icewright_commit_unknown_total", legend="unknown")], bars=True)),
        (8, lines("Delay and next compaction", "Time until the clean-ups may begin, and until the next compaction is due.",
                  [query(f"clamp_min({left} - time(), 0)", f"{TABLE_NAME} delay"),
                   query(f"clamp_min({per_table('icewright_table_next_run_timestamp_seconds')} - time(), 0)",
                         f"{TABLE_NAME} next compaction")], "s")),
        (8, lines("Duration of phases", "95 % of an hour's phases were shorter, over all tables of the job.",
                  [query(quantile("icewright_run_phase_duration_seconds", "action, phase", over="1h"),
                         "{{action}} {{phase}}")], "s")),
    ]))


def table():
    return dashboard(
        "icewright-table", "icewright: table", "One table, or a few: its files around each run, and what the runs did.",
        link("Fleet", "/d/icewright-fleet", "external link", keep=True),
        [table_now(), table_files(), table_sizes(), table_storage(), table_runs()], run_annotations())


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    for name, content in (("fleet", fleet()), ("table", table())):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
