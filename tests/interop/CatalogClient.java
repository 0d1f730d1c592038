import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.catalog.*;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Types.*;

/**
 * The reference library's client against an Iceberg REST catalog: java -cp "JARS/*" CatalogClient.java URI
 *
 * <p>Checks values and ends with `ok`. Data files are named, never written: only metadata is at stake. Names are new in
 * each run.
 */
public class CatalogClient {
  static void check(boolean holds, Object found) {
    if (!holds) throw new AssertionError(String.valueOf(found));
  }

  static DataFile file(Table table, String name) {
    return DataFiles.builder(PartitionSpec.builderFor(table.schema()).day("at").build())
        .withPath(table.location() + "/data/" + name + ".parquet")
        .withFormat("parquet")
        .withFileSizeInBytes(10)
        .withRecordCount(3)
        .withPartitionPath("at_day=2026-01-01")
        .build();
  }

  static void createByTransaction(RESTCatalog catalog, TableIdentifier id, Schema schema, String version) {
    Transaction tx =
        catalog
            .buildTable(id, schema)
            .withPartitionSpec(PartitionSpec.builderFor(schema).day("at").build())
            .withSortOrder(SortOrder.builderFor(schema).asc("id").build())
            .withProperty("format-version", version)
            .createTransaction();
    tx.updateProperties().set("p", "1").commit();
    tx.updateSchema().addColumn("late", StringType.get()).commit();
    tx.newAppend().appendFile(file(tx.table(), "first")).commit();
    check(!catalog.tableExists(id), "staged only");
    tx.commitTransaction();
    Table table = catalog.loadTable(id);
    check(table.spec().specId() == 0 && table.specs().size() == 1, table.specs());
    check(table.sortOrder().orderId() == 1, table.sortOrder());
    check(table.schema().findField("late").fieldId() == 7, table.schema());
    check(table.properties().get("p").equals("1"), table.properties());
    int found = ((BaseTable) table).operations().current().formatVersion();
    check(found == Integer.parseInt(version), found);
  }

  static void branchesAndExpiry(Table table) {
    long first = table.currentSnapshot().snapshotId();
    table.manageSnapshots().createTag("t", first).createBranch("b", first).setMaxRefAgeMs("t", 1_000_000).commit();
    table.newAppend().appendFile(file(table, "second")).toBranch("b").commit();
    table.refresh();
    check(table.refs().size() == 3 && table.refs().get("t").maxRefAgeMs() == 1_000_000, table.refs());
    check(table.currentSnapshot().snapshotId() == first, table.currentSnapshot());
    table.manageSnapshots().replaceBranch("main", "b").removeTag("t").commit();
    table.manageSnapshots().removeBranch("b").commit();
    long head = table.currentSnapshot().snapshotId();
    check(head != first && table.refs().size() == 1, table.refs());
    table.expireSnapshots().expireOlderThan(Long.MAX_VALUE).retainLast(1).cleanExpiredFiles(false).commit();
    table.refresh();
    List<Long> left = new ArrayList<>();
    table.snapshots().forEach(s -> left.add(s.snapshotId()));
    check(left.equals(List.of(head)), left);
  }

  static void evolve(Table table) {
    table.updateSpec().addField(Expressions.bucket("id", 4)).commit();
    table.replaceSortOrder().desc("id").commit();
    table.updateSchema().renameColumn("late", "later").deleteColumn("tags").commit();
    table.refresh();
    check(table.specs().size() == 2 && table.sortOrders().size() == 2, table.specs());
    check(table.schema().findField("later").fieldId() == 7, table.schema());
    check(table.schema().findField("tags") == null, table.schema());
  }

  public static void main(String[] args) throws Exception {
    RESTCatalog catalog = new RESTCatalog();
    catalog.initialize("c", Map.of("uri", args[0]));
    Namespace ns = Namespace.of("java" + System.nanoTime());
    catalog.createNamespace(ns, new HashMap<>(Map.of("k", "v")));
    catalog.setProperties(ns, new HashMap<>(Map.of("x", "y")));
    catalog.removeProperties(ns, new HashSet<>(Set.of("k")));
    check(catalog.loadNamespaceMetadata(ns).equals(Map.of("x", "y")), catalog.loadNamespaceMetadata(ns));
    Schema schema =
        new Schema(
            NestedField.required(1, "id", LongType.get()),
            NestedField.optional(
                2, "tags", MapType.ofOptional(3, 4, StringType.get(), ListType.ofOptional(5, IntegerType.get()))),
            NestedField.optional(6, "at", TimestampType.withZone()));
    for (String version : List.of("1", "2", "3")) {
      TableIdentifier id = TableIdentifier.of(ns, "t" + version);
      createByTransaction(catalog, id, schema, version);
      branchesAndExpiry(catalog.loadTable(id));
      evolve(catalog.loadTable(id));
      catalog.buildTable(id, schema).createOrReplaceTransaction().commitTransaction();
      check(catalog.loadTable(id).currentSnapshot() == null, "replaced");
      TableIdentifier renamed = TableIdentifier.of(ns, "r" + version);
      catalog.renameTable(id, renamed);
      String location = ((BaseTable) catalog.loadTable(renamed)).operations().current().metadataFileLocation();
      catalog.dropTable(renamed, false);
      catalog.registerTable(id, location);
      check(catalog.listTables(ns).equals(List.of(id)), catalog.listTables(ns));
      check(catalog.dropTable(id, true) && !catalog.dropTable(id, true), "dropped once");
    }
    check(catalog.dropNamespace(ns) && !catalog.dropNamespace(ns), "dropped once");
    System.out.println("ok");
  }
}
