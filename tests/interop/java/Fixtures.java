import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.UpdatePartitionSpec;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.io.WriteResult;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.types.Types.DecimalType;
import org.apache.iceberg.types.Types.DoubleType;
import org.apache.iceberg.types.Types.IntegerType;
import org.apache.iceberg.types.Types.LongType;
import org.apache.iceberg.types.Types.NestedField;
import org.apache.iceberg.types.Types.StringType;
import org.apache.iceberg.types.Types.TimestampType;

/**
 * Makes tables with the Iceberg Java library, as the streaming writers of real installations make them.
 *
 * <pre>
 * Fixtures WAREHOUSE upsert   NAMESPACE.TABLE [from=0] [commits=20] [keys=2000] [rows=400] [buckets=5] [flink=0] [pause=0]
 * Fixtures WAREHOUSE nullkeys NAMESPACE.TABLE [commits=8] [rows=60] [flink=0]
 * Fixtures WAREHOUSE append   NAMESPACE.TABLE [files=40] [rows=500] [hours=4] [format=2] [deletes=0]
 * Fixtures WAREHOUSE delete   NAMESPACE.TABLE [every=10]
 * Fixtures WAREHOUSE values   NAMESPACE.TABLE [identity=1]
 * </pre>
 *
 * from=N goes on with a table that has the first N commits, resting pause milliseconds after each: the same rows as if
 * there had been no break. flink=1 adds the summary keys that a Flink job resumes from. delete, and deletes=N in the last
 * commit of append, delete every Nth row of an append table by position, with one delete file per hour, as an engine
 * with merge-on-read does. values makes two files of edge values of every type without partitions, then a spec of the identity
 * of every column, or with identity=0 of other transforms.
 *
 * WAREHOUSE is a folder (a Hadoop catalog, to be registered elsewhere) or the http address of a REST catalog. The same
 * arguments always make the same rows. Prints the location of the newest metadata file as the only line.
 */
public final class Fixtures {
  /** 2025-04-01 00:00 UTC, when the rows begin. */
  private static final long EPOCH_SECONDS = 1743465600L;

  private final Catalog catalog;
  private final TableIdentifier id;
  private final Map<String, Integer> options = new HashMap<>();
  private final Random random = new Random(7);

  private Fixtures(String warehouse, String table, String[] args) throws Exception {
    id = TableIdentifier.parse(table);
    for (int i = 3; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      options.put(pair[0], Integer.valueOf(pair[1]));
    }
    if (warehouse.startsWith("http")) {
      RESTCatalog rest = new RESTCatalog();
      rest.setConf(PlainFiles.configuration());
      rest.initialize("fixtures", Map.of("uri", warehouse));
      catalog = rest;
    } else {
      catalog = new HadoopCatalog(PlainFiles.configuration(), warehouse);
    }
    SupportsNamespaces namespaces = (SupportsNamespaces) catalog;
    if (!namespaces.namespaceExists(id.namespace())) {
      namespaces.createNamespace(id.namespace());
    }
  }

  public static void main(String[] args) throws Exception {
    Fixtures fixtures = new Fixtures(args[0], args[2], args);
    Table table =
        switch (args[1]) {
          case "upsert" -> fixtures.upsert();
          case "nullkeys" -> fixtures.nullKeys();
          case "append" -> fixtures.append();
          case "values" -> fixtures.values();
          case "delete" -> fixtures.deleteEvery(fixtures.catalog.loadTable(fixtures.id), fixtures.option("every", 10));
          default -> throw new IllegalArgumentException("no such kind of table: " + args[1]);
        };
    System.out.println(((BaseTable) table).operations().refresh().metadataFileLocation());
  }

  private int option(String name, int fallback) {
    return options.getOrDefault(name, fallback);
  }

  /** A change stream into {@code bucket(n, pk)}: each commit replaces keys, some of them twice, and deletes a few. */
  private Table upsert() throws Exception {
    Schema schema =
        new Schema(
            List.of(
                NestedField.required(1, "pk", LongType.get()),
                NestedField.optional(2, "name", StringType.get()),
                NestedField.optional(3, "amount", DecimalType.of(12, 2)),
                NestedField.optional(4, "updated", TimestampType.withZone()),
                NestedField.optional(5, "version", IntegerType.get()),
                NestedField.optional(6, "note", StringType.get())),
            Set.of(1));
    PartitionSpec spec = PartitionSpec.builderFor(schema).bucket("pk", option("buckets", 5)).build();
    int from = option("from", 0);
    Table table = from == 0 ? catalog.createTable(id, schema, spec, properties(2)) : catalog.loadTable(id);
    int keys = option("keys", 2000);
    for (int commit = from; commit < option("commits", 20); commit++) {
      random.setSeed(commit);
      UpsertWriter writer = new UpsertWriter(table, List.of("pk"), commit + 1);
      int rows = commit == 0 ? keys : option("rows", 400);
      for (int i = 0; i < rows; i++) {
        // A tenth of the keys is touched by a half of the changes: repeats within a commit are certain.
        int range = i % 2 == 0 ? keys : Math.max(1, keys / 10);
        long pk = commit == 0 ? i : random.nextInt(range);
        Record row = GenericRecord.create(table.schema());
        row.setField("pk", pk);
        row.setField("name", random.nextInt(20) == 0 ? null : "name-" + random.nextInt(9999) + " é漢");
        row.setField("amount", BigDecimal.valueOf(random.nextInt(100000000) - 50000000, 2));
        row.setField("updated", Instant.ofEpochSecond(EPOCH_SECONDS + commit * 600L, i).atOffset(ZoneOffset.UTC));
        row.setField("version", commit);
        row.setField("note", "note " + Long.toHexString(random.nextLong()));
        if (commit > 0 && i % 25 == 24) {
          writer.delete(row);
        } else if (commit == 0) {
          writer.insert(row);
        } else {
          writer.upsert(row);
        }
      }
      commit(table, writer, commit);
      Thread.sleep(option("pause", 0));
    }
    return table;
  }

  /** Upserts without partitions whose key has two columns, both of them often NULL. */
  private Table nullKeys() throws Exception {
    Schema schema =
        new Schema(
            NestedField.optional(1, "tenant", StringType.get()),
            NestedField.optional(2, "number", IntegerType.get()),
            NestedField.optional(3, "value", LongType.get()));
    Table table = catalog.createTable(id, schema, PartitionSpec.unpartitioned(), properties(2));
    for (int commit = 0; commit < option("commits", 8); commit++) {
      UpsertWriter writer = new UpsertWriter(table, List.of("tenant", "number"), commit + 1);
      for (int i = 0; i < option("rows", 60); i++) {
        Record row = GenericRecord.create(schema);
        row.setField("tenant", random.nextInt(3) == 0 ? null : "tenant-" + random.nextInt(4));
        row.setField("number", random.nextInt(3) == 0 ? null : random.nextInt(20));
        row.setField("value", (long) commit * 1000 + i);
        if (i % 15 == 14) {
          writer.delete(row);
        } else {
          writer.upsert(row);
        }
      }
      commit(table, writer, commit);
    }
    return table;
  }

  /** Log lines in local hours held as text: one file of one hour per commit, the hours one after the other. */
  private Table append() throws Exception {
    Schema schema =
        new Schema(
            NestedField.required(1, "id", LongType.get()),
            NestedField.optional(2, "ts", TimestampType.withZone()),
            NestedField.optional(3, "host", StringType.get()),
            NestedField.optional(4, "level", StringType.get()),
            NestedField.optional(5, "status", IntegerType.get()),
            NestedField.optional(6, "bytes", LongType.get()),
            NestedField.optional(7, "latency", DoubleType.get()),
            NestedField.optional(8, "message", StringType.get()),
            NestedField.optional(9, "hour", StringType.get()));
    PartitionSpec spec = PartitionSpec.builderFor(schema).identity("hour").build();
    Table table = catalog.createTable(id, schema, spec, properties(option("format", 2)));
    GenericAppenderFactory factory = new GenericAppenderFactory(table.schema(), table.spec()).setAll(table.properties());
    InternalRecordWrapper wrapper = new InternalRecordWrapper(table.schema().asStruct());
    DateTimeFormatter hours = DateTimeFormatter.ofPattern("yyyy-MM-dd HH");
    String[] levels = {"INFO", "INFO", "INFO", "WARN", "ERROR", "DEBUG"};
    int files = option("files", 40);
    int rows = option("rows", 500);
    for (int file = 0; file < files; file++) {
      long start = EPOCH_SECONDS + 3600L * (file * option("hours", 4) / files);
      String hour = LocalDateTime.ofEpochSecond(start, 0, ZoneOffset.UTC).format(hours);
      PartitionKey partition = new PartitionKey(table.spec(), table.schema());
      DataWriter<Record> writer = null;
      for (int i = 0; i < rows; i++) {
        Record row = GenericRecord.create(table.schema());
        row.setField("id", (long) file * rows + i);
        row.setField("ts", OffsetDateTime.ofInstant(Instant.ofEpochSecond(start, i * 1000L), ZoneOffset.UTC));
        row.setField("host", "host-" + random.nextInt(500));
        row.setField("level", levels[random.nextInt(levels.length)]);
        row.setField("status", random.nextInt(5) < 3 ? 200 : 404);
        row.setField("bytes", random.nextInt(50) == 0 ? null : (long) random.nextInt(100000));
        row.setField("latency", random.nextInt(1000000) / 1000.0);
        row.setField("message", message());
        row.setField("hour", hour);
        if (writer == null) {
          partition.partition(wrapper.wrap(row));
          OutputFileFactory names =
              OutputFileFactory.builderFor(table, file, 1).format(FileFormat.PARQUET).build();
          writer = factory.newDataWriter(names.newOutputFile(partition), FileFormat.PARQUET, partition);
        }
        writer.write(row);
      }
      writer.close();
      table.newFastAppend().appendFile(writer.toDataFile()).commit();
    }
    if (option("deletes", 0) > 0) {
      deleteEvery(table, option("deletes", 0));
    }
    return table;
  }

  /** Values that engines easily take for others, as partitions. A column of type fixed is there, but no partition by it. */
  private Table values() throws Exception {
    Schema schema =
        new Schema(
            NestedField.required(1, "id", LongType.get()),
            NestedField.optional(2, "b", Types.BooleanType.get()),
            NestedField.optional(3, "i", IntegerType.get()),
            NestedField.optional(4, "l", LongType.get()),
            NestedField.optional(5, "f", Types.FloatType.get()),
            NestedField.optional(6, "d", DoubleType.get()),
            NestedField.optional(7, "small", DecimalType.of(9, 2)),
            NestedField.optional(8, "wide", DecimalType.of(38, 10)),
            NestedField.optional(9, "day", Types.DateType.get()),
            NestedField.optional(10, "time", Types.TimeType.get()),
            NestedField.optional(11, "ts", TimestampType.withoutZone()),
            NestedField.optional(12, "tz", TimestampType.withZone()),
            NestedField.optional(13, "s", StringType.get()),
            NestedField.optional(14, "u", Types.UUIDType.get()),
            NestedField.optional(15, "bytes", Types.BinaryType.get()),
            NestedField.optional(16, "code", Types.FixedType.ofLength(3)));
    Table table = catalog.createTable(id, schema, PartitionSpec.unpartitioned(), properties(2));
    GenericAppenderFactory factory = new GenericAppenderFactory(schema, table.spec());
    for (int file = 0; file < 2; file++) {
      OutputFileFactory names = OutputFileFactory.builderFor(table, file, 1).format(FileFormat.PARQUET).build();
      DataWriter<Record> writer = factory.newDataWriter(names.newOutputFile(), FileFormat.PARQUET, null);
      for (int i = 0; i < 8; i++) {
        writer.write(edge(schema, file * 8L + i, i));
      }
      writer.close();
      table.newFastAppend().appendFile(writer.toDataFile()).commit();
    }
    UpdatePartitionSpec spec = table.updateSpec();
    if (option("identity", 1) == 1) {
      List<NestedField> columns = schema.columns();
      columns.subList(1, columns.size() - 1).forEach(column -> spec.addField("by_" + column.name(), Expressions.ref(column.name())));
    } else {
      for (String column : List.of("i", "wide", "time", "u", "bytes", "code", "s")) {
        spec.addField("bucket_" + column, Expressions.bucket(column, 3));
      }
      for (String column : List.of("l", "small", "s", "bytes")) {
        spec.addField("cut_" + column, Expressions.truncate(column, 3));
      }
      spec.addField("year", Expressions.year("day"));
      spec.addField("month", Expressions.month("tz"));
      spec.addField("hour", Expressions.hour("ts"));
    }
    spec.commit();
    return table;
  }

  private static Record edge(Schema schema, long id, int i) {
    long[] micros = {0, 1, -1, -86400000001L, 86399999999L, -2203891200000001L, 253402300799999999L, 951782400000000L};
    LocalDateTime time = LocalDateTime.ofEpochSecond(Math.floorDiv(micros[i], 1000000L), (int) Math.floorMod(micros[i], 1000000L) * 1000, ZoneOffset.UTC);
    Record row = GenericRecord.create(schema);
    row.setField("id", id);
    if (i == 7) {
      return row;
    }
    row.setField("b", i % 2 == 0);
    row.setField("i", new int[] {0, -1, 7, Integer.MIN_VALUE, Integer.MAX_VALUE, -7, 34}[i]);
    row.setField("l", new long[] {0, -1, 7, Long.MIN_VALUE, Long.MAX_VALUE, -7, 34}[i]);
    row.setField("f", new float[] {0f, -0f, Float.NaN, Float.NEGATIVE_INFINITY, Float.MIN_VALUE, -1.5f, 1e10f}[i]);
    row.setField("d", new double[] {0, -0.0, Double.NaN, Double.NEGATIVE_INFINITY, Double.MIN_VALUE, -1.5, 1e10}[i]);
    row.setField("small", BigDecimal.valueOf(new long[] {0, -1, 127, 128, -999999999, 999999999, -129}[i], 2));
    row.setField("wide", new BigDecimal(new String[] {"0", "-1", "127", "128", "-" + "9".repeat(38), "9".repeat(38), "-129"}[i]).movePointLeft(10).setScale(10));
    row.setField("day", time.toLocalDate());
    row.setField("time", time.toLocalTime());
    row.setField("ts", time);
    row.setField("tz", time.atOffset(ZoneOffset.UTC));
    row.setField("s", new String[] {"", "a", "a/b=c%", "\ud83d\ude00x\ud83d\ude00y", "\uffffz", "äöüß", " "}[i]);
    long[] halves = {0, Long.MAX_VALUE, Long.MIN_VALUE, -1, 1, -1, 0x7f00000000000000L};
    row.setField("u", new UUID(halves[i], halves[6 - i]));
    row.setField("bytes", ByteBuffer.wrap(new byte[][] {{}, {0}, {-1}, {127, -128}, {1, 2, 3, 4}, {-1, -1, -1}, {1}}[i]));
    row.setField("code", new byte[] {(byte) i, -1, (byte) -i});
    return row;
  }

  private Table deleteEvery(Table table, int n) throws Exception {
    GenericAppenderFactory factory = new GenericAppenderFactory(table.schema(), table.spec()).setAll(table.properties());
    OutputFileFactory names = OutputFileFactory.builderFor(table, 0, 2).format(FileFormat.PARQUET).build();
    // Sorted by path, as the format demands of a file of position deletes.
    Map<String, TreeMap<String, DataFile>> hours = new TreeMap<>();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        DataFile file = task.file().copy();
        String hour = file.partition().get(0, CharSequence.class).toString();
        hours.computeIfAbsent(hour, none -> new TreeMap<>()).put(file.location(), file);
      }
    }
    RowDelta delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId()).validateDeletedFiles();
    for (TreeMap<String, DataFile> files : hours.values()) {
      PartitionKey partition = new PartitionKey(table.spec(), table.schema());
      partition.set(0, files.firstEntry().getValue().partition().get(0, CharSequence.class).toString());
      PositionDeleteWriter<Record> writer =
          factory.newPosDeleteWriter(names.newOutputFile(partition), FileFormat.PARQUET, partition);
      PositionDelete<Record> row = PositionDelete.create();
      for (DataFile file : files.values()) {
        for (long position = 0; position < file.recordCount(); position += n) {
          writer.write(row.set(file.location(), position, null));
        }
      }
      writer.close();
      delta.addDeletes(writer.toDeleteFile()).validateDataFilesExist(files.keySet());
    }
    delta.commit();
    return table;
  }

  private String message() {
    byte[] trace = new byte[8];
    random.nextBytes(trace);
    return "{\"req\":\"" + Long.toHexString(random.nextLong()) + "\",\"user\":" + random.nextInt(90000)
        + ",\"path\":\"/api/v1/item/" + random.nextInt(4000) + "\",\"agent\":\"client-" + random.nextInt(40)
        + "\",\"trace\":\"" + new String(trace, StandardCharsets.ISO_8859_1).replaceAll("[^a-z]", "x") + "\"}";
  }

  /** Small manifests are left alone: each commit adds its own, as it does under a busy writer. */
  private static Map<String, String> properties(int format) {
    return Map.of(
        "format-version", String.valueOf(format),
        "write.parquet.compression-codec", "zstd",
        "commit.manifest.min-count-to-merge", "1000");
  }

  private void commit(Table table, UpsertWriter writer, int commit) throws Exception {
    WriteResult result = writer.complete();
    RowDelta delta = table.newRowDelta();
    for (DataFile file : result.dataFiles()) {
      delta.addRows(file);
    }
    for (DeleteFile file : result.deleteFiles()) {
      delta.addDeletes(file);
    }
    if (option("flink", 0) == 1) {
      delta.set("flink.job-id", "5c0ffee05c0ffee05c0ffee05c0ffee0");
      delta.set("flink.operator-id", "0decade00decade00decade00decade0");
      delta.set("flink.max-committed-checkpoint-id", String.valueOf(commit + 1));
    }
    delta.commit();
  }
}
