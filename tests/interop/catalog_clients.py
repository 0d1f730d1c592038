"""Real clients against an Iceberg REST catalog: python catalog_clients.py http://127.0.0.1:8181

Needs `pyiceberg[pyarrow,pyiceberg-core]`; DuckDB takes part if it is installed with its iceberg extension. Asserts values and ends
with `ok`. The names carry a suffix, so that it can run again and again against one catalog.
"""

import os
import sys
import uuid

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

URI = sys.argv[1]
RUN = uuid.uuid4().hex[:8]
catalog = load_catalog("c", type="rest", uri=URI)


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind:
        return
    raise AssertionError(f"{call} did not raise {kind}")


def rows(ids, name="x"):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([f"{name}{i}" for i in ids])})


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)


def namespaces():
    top, child = (f"n{RUN}",), (f"n{RUN}", "odd na.me/ü%")
    catalog.create_namespace(top, {"owner": "me", "old": "1"})
    raises(NamespaceAlreadyExistsError, catalog.create_namespace, top)
    catalog.create_namespace(child)
    assert catalog.namespace_exists(child) and not catalog.namespace_exists(("none",))
    assert top in catalog.list_namespaces()
    assert catalog.list_namespaces(top) == [child], catalog.list_namespaces(top)
    summary = catalog.update_namespace_properties(top, removals={"old", "never"}, updates={"new": "2"})
    assert (summary.updated, summary.removed, summary.missing) == (["new"], ["old"], ["never"]), summary
    assert catalog.load_namespace_properties(top) == {"owner": "me", "new": "2"}
    raises(NamespaceNotEmptyError, catalog.drop_namespace, top)
    catalog.create_table((*child, "t a/b#?"), SCHEMA).append(rows([1, 2]))
    assert ids(catalog.load_table((*child, "t a/b#?"))) == [1, 2]
    raises(NamespaceNotEmptyError, catalog.drop_namespace, child)
    catalog.drop_table((*child, "t a/b#?"))
    catalog.drop_namespace(child)
    catalog.drop_namespace(top)
    raises(NoSuchNamespaceError, catalog.drop_namespace, top)
    raises(NoSuchNamespaceError, catalog.list_tables, top)


def writes(version):
    name = f"w{RUN}.v{version}"
    table = catalog.create_table(name, SCHEMA, properties={"format-version": str(version), "a": "1"})
    assert table.format_version == version and table.properties.get("a") == "1", table.metadata
    assert "format-version" not in table.properties
    raises(TableAlreadyExistsError, catalog.create_table, name, SCHEMA)
    assert catalog.table_exists(name)
    table.append(rows([1, 2, 3]))
    table.append(rows([4, 5]))
    assert ids(table) == [1, 2, 3, 4, 5]
    table.delete("id = 4")
    table.overwrite(rows([7, 8]), overwrite_filter="id < 3")
    assert ids(table) == [3, 5, 7, 8]

    with table.update_schema() as update:
        update.add_column("extra", IntegerType())
        update.rename_column("name", "label")
    assert [f.name for f in catalog.load_table(name).schema().fields] == ["id", "label", "extra"]
    assert catalog.load_table(name).schema().find_field("extra").field_id == 3
    with table.transaction() as tx:
        tx.set_properties({"b": "2", "write.metadata.previous-versions-max": "3"})
        tx.remove_properties("a")
    assert catalog.load_table(name).properties == {"b": "2", "write.metadata.previous-versions-max": "3"}

    first = table.history()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "first").create_branch(first, "side").commit()
    refs = sorted(catalog.load_table(name).metadata.refs)
    assert refs == ["first", "main", "side"], refs
    assert sorted(table.scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    table.manage_snapshots().remove_branch("side").commit()
    assert sorted(catalog.load_table(name).metadata.refs) == ["first", "main"]
    assert len(catalog.load_table(name).metadata.metadata_log) == 3

    stale = catalog.load_table(name)
    table.refresh().append(pa.table({"id": pa.array([9], pa.int64()), "label": ["n"], "extra": pa.array([1], pa.int32())}))
    with_retry_off = stale.properties | {"commit.retry.num-retries": "0"}
    stale.metadata = stale.metadata.model_copy(update={"properties": with_retry_off})
    raises(CommitFailedException, stale.append, rows([10]).rename_columns(["id", "label"]))
    assert ids(table) == [3, 5, 7, 8, 9]

    table.refresh().maintenance.expire_snapshots().by_id(table.history()[1].snapshot_id).commit()
    assert ids(table) == [3, 5, 7, 8, 9]
    if version == 1:
        with table.refresh().transaction() as tx:
            tx.upgrade_table_version(2)
        table.refresh().delete("id = 3")
        assert catalog.load_table(name).format_version == 2 and ids(table) == [5, 7, 8, 9]


def partitioned():
    schema = Schema(
        NestedField(11, "id", LongType(), required=True),
        NestedField(12, "at", TimestampType(), required=False),
        NestedField(13, "kind", StringType(), required=False),
        NestedField(
            14, "deep", StructType(NestedField(15, "tags", ListType(16, StringType()), required=False)), required=False
        ),
        NestedField(17, "attrs", MapType(18, StringType(), 19, DecimalType(9, 2)), required=False),
        identifier_field_ids=[11],
    )
    spec = PartitionSpec(
        PartitionField(11, 1000, BucketTransform(2), "id_bucket"),
        PartitionField(12, 1001, DayTransform(), "at_day"),
        PartitionField(13, 1002, IdentityTransform(), "kind"),
    )
    order = SortOrder(SortField(11, direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST))
    table = catalog.create_table(f"w{RUN}.p", schema, partition_spec=spec, sort_order=order)
    by_name = {f.name: f.field_id for f in table.schema().fields}
    assert [f.source_id for f in table.spec().fields] == [by_name["id"], by_name["at"], by_name["kind"]]
    assert table.sort_order().fields[0].source_id == by_name["id"] and table.sort_order().order_id == 1
    assert table.schema().identifier_field_ids == [by_name["id"]]
    data = pa.Table.from_pylist(
        [
            {"id": i, "at": None if i == 3 else pa.scalar(i * 86_400_000_000, pa.timestamp("us")).as_py(), "kind": k,
             "deep": {"tags": ["a", "b"]}, "attrs": None}
            for i, k in enumerate(["a", "b", None, "a", "c"])
        ],
        schema=table.schema().as_arrow(),
    )
    table.append(data)
    assert ids(table) == [0, 1, 2, 3, 4]
    assert table.scan(row_filter="kind = 'a'").to_arrow().num_rows == 2
    with table.update_spec() as update:
        update.remove_field("kind")
        update.add_identity("kind")
    with table.update_spec() as update:
        update.remove_field("at_day")
    assert len(catalog.load_table(f"w{RUN}.p").specs()) == 2, table.specs()
    table.append(data)
    assert table.refresh().scan().to_arrow().num_rows == 10
    table.delete("kind = 'a'")
    assert table.refresh().scan().to_arrow().num_rows == 6


def create_transaction():
    name = f"w{RUN}.tx"
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    order = SortOrder(SortField(2))
    with catalog.create_table_transaction(
        name, SCHEMA, partition_spec=spec, sort_order=order, properties={"k": "v", "format-version": "2"}
    ) as tx:
        assert not catalog.table_exists(name)
        tx.append(rows([1, 2, 3]))
        tx.set_properties({"k2": "v2"})
    table = catalog.load_table(name)
    assert ids(table) == [1, 2, 3]
    assert table.properties == {"k": "v", "k2": "v2"}, table.properties
    assert list(table.specs()) == [0] and table.spec().fields[0].name == "b", table.specs()
    assert table.sort_order().fields[0].source_id == 2
    assert {t["spec_id"] for t in table.inspect.files().to_pylist()} == {0}
    late = catalog.create_table_transaction(f"w{RUN}.late", SCHEMA)
    catalog.create_table(f"w{RUN}.late", SCHEMA).append(rows([1]))
    raises((CommitFailedException, TableAlreadyExistsError), late.commit_transaction)
    assert ids(catalog.load_table(f"w{RUN}.late")) == [1]


def rename_drop_register():
    a, b = f"w{RUN}.a", f"w{RUN}.b"
    table = catalog.create_table(a, SCHEMA)
    table.append(rows([1, 2]))
    catalog.create_namespace(f"x{RUN}")
    catalog.rename_table(a, f"x{RUN}.b")
    raises(NoSuchTableError, catalog.load_table, a)
    moved = catalog.load_table(f"x{RUN}.b")
    fresh = catalog.create_table(a, SCHEMA)
    assert fresh.location() != moved.location(), "a renamed table must not share its files with a new one"
    raises(TableAlreadyExistsError, catalog.rename_table, a, f"x{RUN}.b")
    moved.append(rows([3]))
    metadata_location = moved.refresh().metadata_location
    catalog.drop_table(f"x{RUN}.b")
    raises(NoSuchTableError, catalog.drop_table, f"x{RUN}.b")
    for i, location in enumerate(
        [metadata_location, metadata_location.replace("file://", "file:"), metadata_location.replace("file://", "")]
    ):
        name = f"w{RUN}.r{i}"
        again = catalog.register_table(name, location)
        assert ids(again) == [1, 2, 3]
        raises(TableAlreadyExistsError, catalog.register_table, name, location)
        again.append(rows([4]))
        assert ids(catalog.load_table(name)) == [1, 2, 3, 4]
        catalog.drop_table(name)
    path = fresh.location().removeprefix("file://")
    assert os.path.isdir(path)
    catalog.purge_table(a)
    assert not os.path.exists(path)
    assert os.path.exists(metadata_location.removeprefix("file://"))
    tables = [t[-1] for t in catalog.list_tables(f"w{RUN}")]
    assert tables == sorted(tables) and "a" not in tables, tables
    paged = load_catalog("p", **{"type": "rest", "uri": URI, "rest-page-size": "2"})
    assert [t[-1] for t in paged.list_tables(f"w{RUN}")] == tables
    assert catalog.load_table(f"w{RUN}.v2").scan(row_filter="id = 9").to_arrow().num_rows == 1


def with_duckdb():
    try:
        import duckdb
    except ImportError:
        print("duckdb is not installed: skipped")
        return
    import importlib.util

    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in ["avro", "httpfs", "iceberg"]:
        spec = importlib.util.find_spec(f"duckdb_extension_{extension}")
        base = os.path.dirname(spec.origin) if spec.origin else list(spec.submodule_search_locations)[0]
        con.execute(f"LOAD '{base}/extensions/v{duckdb.__version__}/{extension}.duckdb_extension'")
    con.execute(f"ATTACH '' AS c (TYPE ICEBERG, ENDPOINT '{URI}', AUTHORIZATION_TYPE 'none', READ_ONLY false)")
    name = f"c.w{RUN}.duck"
    con.execute(f"CREATE TABLE {name} (id BIGINT, name VARCHAR)")
    con.execute(f"INSERT INTO {name} SELECT i, 'x' || i FROM range(100) t(i)")
    con.execute(f"DELETE FROM {name} WHERE id % 10 = 0")
    con.execute(f"UPDATE {name} SET name = 'y' WHERE id = 5")
    assert con.execute(f"SELECT count(*), sum(id), min(name) FROM {name}").fetchone()[:2] == (90, 4500)
    assert ids(catalog.load_table(f"w{RUN}.duck")) == [i for i in range(100) if i % 10]
    con.execute(f"CREATE TABLE c.w{RUN}.ctas AS SELECT i AS id FROM range(50) t(i)")
    assert ids(catalog.load_table(f"w{RUN}.ctas")) == list(range(50))
    con.execute(f"BEGIN; INSERT INTO {name} VALUES (1000, 'z'); INSERT INTO c.w{RUN}.ctas VALUES (1000); COMMIT")
    assert 1000 in ids(catalog.load_table(f"w{RUN}.duck")) and 1000 in ids(catalog.load_table(f"w{RUN}.ctas"))
    assert con.execute(f"SELECT count(*) FROM c.w{RUN}.v2").fetchone() == (5,)
    assert con.execute(f"SELECT count(*) FROM c.w{RUN}.p").fetchone() == (6,)
    con.execute(f"DROP TABLE {name}")
    raises(NoSuchTableError, catalog.load_table, f"w{RUN}.duck")


namespaces()
catalog.create_namespace(f"w{RUN}")
for step in [lambda: writes(2), lambda: writes(1), partitioned, create_transaction, rename_drop_register, with_duckdb]:
    step()
print("ok")
