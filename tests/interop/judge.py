"""What others see of a table: DuckDB and PyIceberg read it, PyIceberg and DuckDB write to it beside the daemon.

Each command prints one JSON object. Nothing here shares code with the daemon.

  register TABLE METADATA           puts an existing metadata file into the catalog
  create TABLE [--format N]         an empty log table (partitioned by the text column `hour`)
  digest TABLE ENGINE...            rows and digests of the row multiset, as each engine reads it: `duckdb` (wrong where
                                    columns of an equality delete are NULL), `pyiceberg` (refuses equality deletes),
                                    `java` (the reference; local files only)
  files TABLE                       data files, delete files and manifests with live entries of the current snapshot;
                                    retained snapshots
  find TABLE                        whether Java finds each row by each of its values: specs of the files, number of
                                    questions, values that are missed; local files without deletes only
  storage TABLE                     what storage holds against what the metadata reaches
  append TABLE [--rows N] [--commits N] [--until FILE] [--hour H]
                                    commits of N rows each, until that many are in or FILE exists
  delete TABLE WHERE                a merge-on-read delete by DuckDB
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from urllib.parse import urlparse

import duckdb
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

LOG_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "host", StringType()),
    NestedField(4, "level", StringType()),
    NestedField(5, "status", IntegerType()),
    NestedField(6, "bytes", LongType()),
    NestedField(7, "latency", DoubleType()),
    NestedField(8, "message", StringType()),
    NestedField(9, "hour", StringType()),
)
LOG_ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("host", pa.string()),
        pa.field("level", pa.string()),
        pa.field("status", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("latency", pa.float64()),
        pa.field("message", pa.string()),
        pa.field("hour", pa.string()),
    ]
)


def open_catalog(args):
    properties = {"uri": args.uri}
    if args.warehouse:
        properties["warehouse"] = args.warehouse
    if args.credential:
        properties["credential"] = args.credential
        properties["scope"] = "PRINCIPAL_ROLE:ALL"
        properties["oauth2-server-uri"] = args.uri.rstrip("/") + "/v1/oauth/tokens"
    return RestCatalog("judge", **properties)


def open_duckdb():
    """DuckDB with its extensions from the installed wheels: nothing is fetched."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "false"})
    for name in ("avro", "httpfs", "iceberg"):
        package = __import__(f"duckdb_extension_{name}")
        folder = os.path.dirname(package.__file__)
        connection.load_extension(f"{folder}/extensions/v{duckdb.__version__}/{name}.duckdb_extension")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def attach(connection, args):
    """The REST catalog as `lake` in DuckDB, for tables that lie in an object store."""
    server, client, secret = args.uri.rstrip("/"), *args.credential.split(":")
    connection.execute(
        f"CREATE SECRET judge (TYPE ICEBERG, CLIENT_ID '{client}', CLIENT_SECRET '{secret}', "
        f"OAUTH2_SERVER_URI '{server}/v1/oauth/tokens', OAUTH2_SCOPE 'PRINCIPAL_ROLE:ALL')"
    )
    connection.execute(
        f"ATTACH '{args.warehouse}' AS lake (TYPE ICEBERG, SECRET judge, ENDPOINT '{server}', READ_ONLY false)"
    )


def quoted(table):
    return "lake." + ".".join(f'"{part}"' for part in table.split("."))


def row_digest(connection, relation, columns):
    """Count, sum and xor of row hashes: independent of order; sums of disjoint row sets add up."""
    row = ", ".join(f'"{column}"' for column in sorted(columns))
    rows, total, xor = connection.execute(
        f"SELECT count(*), coalesce(sum(hash({row})::HUGEINT), 0), coalesce(bit_xor(hash({row})), 0) FROM {relation}"
    ).fetchone()
    return {"rows": rows, "sum": str(int(total)), "xor": str(int(xor))}


def settled(args, question, doubtful=lambda answer: False):
    """The answer of `question(table)`. While it looks, somebody may expire what it looks at: an error or a doubtful
    answer counts only if the table has not moved on meanwhile."""
    catalog = open_catalog(args)
    table = catalog.load_table(args.table)
    while True:
        error = answer = None
        try:
            answer = question(table)
        except Exception as e:
            error = e
        if error is None and not doubtful(answer):
            return answer
        newer = catalog.load_table(args.table)
        if newer.metadata_location == table.metadata_location:
            if error is not None:
                raise error
            return answer
        table = newer


def digest(args):
    return settled(args, lambda table: {engine: read_digest(args, table, engine) for engine in args.engines})


def read_digest(args, table, engine):
    columns = [field.name for field in table.schema().fields]
    connection = open_duckdb()
    if engine == "pyiceberg":
        connection.register("arrow_rows", table.scan().to_arrow())
        return row_digest(connection, "arrow_rows", columns)
    if engine == "java":
        with tempfile.TemporaryDirectory() as folder:
            output = folder + "/rows.parquet"
            java("LiveRows", table.metadata_location, output)
            return row_digest(connection, f"read_parquet('{output}')", columns)
    if engine != "duckdb":
        sys.exit(f"no such engine: {engine}")
    if args.credential:
        attach(connection, args)
        return row_digest(connection, quoted(args.table), columns)
    return row_digest(connection, f"iceberg_scan('{local(table.metadata_location)}')", columns)


def java(program, *arguments):
    """Runs a program that setup.sh compiled; both lie beside this Python environment."""
    folder = os.path.dirname(sys.prefix)
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    classes = f"{folder}/classes:{folder}/jars/*"
    run = ["java", *quick, "-cp", classes, program, *arguments]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout


def find(args):
    return settled(args, find_rows)


def find_rows(table):
    lines = java("FindRows", table.metadata_location).splitlines()
    after = lambda word: [line[len(word) + 1 :] for line in lines if line.startswith(word + " ")]
    return {"specs": [int(spec) for spec in after("spec")], "asked": int(after("asked")[0]), "missed": after("missed")}


def local(path):
    """`/dir/f` of `file:/dir/f`, `file:///dir/f` or `/dir/f`; anything else as it is."""
    url = urlparse(path)
    return url.path if url.scheme in ("", "file") else path


def files(args):
    return settled(args, count_files)


def count_files(table):
    snapshots = [
        {"id": s.snapshot_id, "summary": {"operation": s.summary.operation.value, **s.summary.additional_properties}}
        for s in sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms)
    ]
    current = table.current_snapshot()
    answer = {"snapshots": snapshots, "data_files": 0, "delete_files": 0, "manifests": {"data": 0, "deletes": 0}}
    partitions = {}
    for manifest in current.manifests(table.io) if current else []:
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        # A manifest may hold nothing but what its snapshot removed; the next commit drops it.
        answer["manifests"]["data" if manifest.content == 0 else "deletes"] += bool(entries)
        for entry in entries:
            file = entry.data_file
            data = file.content == 0
            answer["data_files" if data else "delete_files"] += 1
            if data:
                name = "/".join(str(value) for value in file.partition)
                part = partitions.setdefault(name, {"files": 0, "bytes": 0, "records": 0, "sizes": []})
                part["files"] += 1
                part["bytes"] += file.file_size_in_bytes
                part["records"] += file.record_count
                part["sizes"].append(file.file_size_in_bytes)
    return {**answer, "partitions": partitions}


def reachable(table):
    """Every file that some snapshot or the metadata itself names, by kind."""
    found = {"metadata": {table.metadata_location}, "log": {e.metadata_file for e in table.metadata.metadata_log}}
    found["statistics"] = {s.statistics_path for s in table.metadata.statistics}
    found["statistics"] |= {s.statistics_path for s in table.metadata.partition_statistics}
    lists, manifests, content = set(), set(), set()
    for snapshot in table.metadata.snapshots:
        lists.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in manifests:
                manifests.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    content.add(entry.data_file.file_path)
    return {**found, "manifest_lists": lists, "manifests": manifests, "content": content}


def listed(table):
    """Every file below the table's location, in the spelling that `local` gives."""
    location = local(table.location())
    if "://" not in location:
        return {os.path.join(folder, name) for folder, _, names in os.walk(location) for name in names}
    url = urlparse(location)
    from pyarrow.fs import FileSelector

    system = table.io.fs_by_scheme(url.scheme, url.netloc)
    infos = system.get_file_info(FileSelector(url.netloc + url.path, recursive=True))
    return {f"{url.scheme}://{info.path}" for info in infos if info.is_file}


def storage(args):
    return settled(args, compare_storage, lambda answer: answer["missing"])


def compare_storage(table):
    kinds = {kind: {local(path) for path in paths} for kind, paths in reachable(table).items()}
    on_disk = listed(table)
    everything = set().union(*kinds.values())
    needed = everything - (kinds["log"] - kinds["metadata"])
    # A Hadoop catalog's pointer. Whoever registered the table elsewhere may still use it: it is no garbage.
    hint = {path for path in on_disk if path.endswith("/metadata/version-hint.text")}
    return {
        "reachable": {kind: len(paths) for kind, paths in kinds.items()},
        "listed": len(on_disk),
        "missing": sorted(needed - on_disk),
        "unreachable": sorted(on_disk - everything - hint),
    }


def log_rows(start, count, hour):
    ids = range(start, start + count)
    first = datetime(2025, 4, 1, tzinfo=timezone.utc)
    return pa.table(
        [
            list(ids),
            [first + timedelta(milliseconds=i % 3_600_000) for i in ids],
            [f"host-{i % 500}" for i in ids],
            [("INFO", "WARN", "ERROR", None)[i % 4] for i in ids],
            [200 if i % 3 else 404 for i in ids],
            [i * 37 % 100_000 for i in ids],
            [i % 1000 / 8 for i in ids],
            [f'{{"req":"{i * 2654435761 % 2**32:08x}","user":{i % 90_000}}}' for i in ids],
            [hour] * count,
        ],
        schema=LOG_ARROW,
    )


def holds(args, rows):
    """Whether rows of an append that reported a failure are in the table nevertheless."""
    first, last = rows["id"][0].as_py(), rows["id"][-1].as_py()
    span = And(GreaterThanOrEqual("id", first), LessThanOrEqual("id", last))
    return settled(args, lambda table: table.scan(row_filter=span).to_arrow().num_rows) > 0


def append(args):
    table = open_catalog(args).load_table(args.table)
    connection = open_duckdb()
    totals, commits, refused, names = Counter(), 0, 0, LOG_ARROW.names
    xor = 0
    while commits < args.commits and not (args.until and os.path.exists(args.until)):
        rows = log_rows(args.first_id + commits * args.rows, args.rows, args.hour)
        while True:
            before = table.metadata_location
            try:
                table.append(rows)
                break
            except Exception as e:
                # Given up by the library, after its own retries or since the snapshot that it started from has expired (it
                # wants to look at what was committed since, or at that snapshot's files, which may go between two reads):
                # the tests keep snapshots for a moment only. In every other case the failure is one.
                if holds(args, rows):
                    break
                table.refresh()
                if not isinstance(e, CommitFailedException) and table.metadata_location == before:
                    raise
                refused += 1
        connection.register("appended", rows)
        part = row_digest(connection, "appended", names)
        totals.update({"rows": part["rows"], "sum": int(part["sum"])})
        xor ^= int(part["xor"])
        commits += 1
        if args.pause:
            time.sleep(args.pause)
    return {
        "commits": commits,
        "refused": refused,
        "rows": totals["rows"],
        "sum": str(totals["sum"]),
        "xor": str(xor),
    }


def create(args):
    catalog = open_catalog(args)
    try:
        catalog.create_namespace(args.table.rsplit(".", 1)[0])
    except NamespaceAlreadyExistsError:
        pass
    spec = PartitionSpec(PartitionField(9, 1000, IdentityTransform(), "hour"))
    properties = {"format-version": str(args.format), "write.parquet.compression-codec": "zstd"}
    table = catalog.create_table(args.table, LOG_SCHEMA, partition_spec=spec, properties=properties)
    return {"location": table.location(), "vended": sorted(k for k in table.io.properties if "token" in k)}


def register(args):
    catalog = open_catalog(args)
    try:
        catalog.create_namespace(args.table.rsplit(".", 1)[0])
    except NamespaceAlreadyExistsError:
        pass
    table = catalog.register_table(args.table, args.metadata)
    return {"location": table.location(), "metadata": table.metadata_location}


def delete(args):
    # A failed try has deleted nothing: its caller counts the rows.
    def try_once(_):
        connection = open_duckdb()
        attach(connection, args)
        count = connection.execute(f"DELETE FROM {quoted(args.table)} WHERE {args.where}").fetchone()
        return {"deleted": count[0] if count else None}

    return settled(args, try_once)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True, help="of the REST catalog")
    parser.add_argument("--warehouse")
    parser.add_argument("--credential", help="CLIENT:SECRET for OAuth2; means that files lie in an object store")
    commands = parser.add_subparsers(required=True)

    def command(run, *names, **options):
        sub = commands.add_parser(run.__name__)
        sub.add_argument("table")
        for name in names:
            sub.add_argument(name, nargs="+" if name.endswith("s") else None)
        for name, (kind, default) in options.items():
            sub.add_argument("--" + name.replace("_", "-"), type=kind, default=default)
        sub.set_defaults(run=run)

    command(register, "metadata")
    command(create, format=(int, 2))
    command(digest, "engines")
    command(files)
    command(find)
    command(storage)
    command(
        append,
        rows=(int, 100),
        commits=(int, sys.maxsize),
        until=(str, None),
        hour=(str, "2025-04-01 03"),
        first_id=(int, 1_000_000_000),
        pause=(float, 0.0),
    )
    command(delete, "where")
    args = parser.parse_args()
    json.dump(args.run(args), sys.stdout)
    print()


if __name__ == "__main__":
    main()
