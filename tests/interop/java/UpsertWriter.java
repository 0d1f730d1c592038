import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.io.BaseTaskWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.TypeUtil;

/**
 * One checkpoint of a change stream: per partition a data file, an equality-delete file for keys seen before the
 * checkpoint, and position deletes for keys written more than once within it.
 */
final class UpsertWriter extends BaseTaskWriter<Record> {
  private final Table table;
  private final Schema keySchema;
  private final InternalRecordWrapper wrapper;
  private final Map<StructLike, Delta> deltas = new HashMap<>();
  private final PartitionKey partition;

  UpsertWriter(Table table, List<String> key, int checkpoint) {
    this(table, table.schema().select(key), checkpoint);
  }

  private UpsertWriter(Table table, Schema keySchema, int checkpoint) {
    super(
        table.spec(),
        FileFormat.PARQUET,
        new GenericAppenderFactory(
            table,
            table.schema(),
            table.spec(),
            table.properties(),
            TypeUtil.getProjectedIds(keySchema).stream().mapToInt(Integer::intValue).toArray(),
            keySchema,
            null),
        OutputFileFactory.builderFor(table, checkpoint, 1).format(FileFormat.PARQUET).build(),
        table.io(),
        Long.MAX_VALUE);
    this.table = table;
    this.keySchema = keySchema;
    this.wrapper = new InternalRecordWrapper(table.schema().asStruct());
    this.partition = new PartitionKey(table.spec(), table.schema());
  }

  /** Adds a row whose key the table does not have. */
  void insert(Record row) throws IOException {
    delta(row).write(row);
  }

  /** Replaces whatever has the row's key. */
  void upsert(Record row) throws IOException {
    delete(row);
    insert(row);
  }

  /** Deletes whatever has the row's key. */
  void delete(Record row) throws IOException {
    delta(row).deleteKey(key(row));
  }

  @Override
  public void write(Record row) throws IOException {
    upsert(row);
  }

  @Override
  public void close() throws IOException {
    for (Delta delta : deltas.values()) {
      delta.close();
    }
    deltas.clear();
  }

  private Record key(Record row) {
    Record key = GenericRecord.create(keySchema);
    keySchema.columns().forEach(column -> key.setField(column.name(), row.getField(column.name())));
    return key;
  }

  private Delta delta(Record row) {
    if (table.spec().isUnpartitioned()) {
      return deltas.computeIfAbsent(null, none -> new Delta(null));
    }
    partition.partition(wrapper.wrap(row));
    Delta delta = deltas.get(partition);
    if (delta == null) {
      PartitionKey own = partition.copy();
      delta = new Delta(own);
      deltas.put(own, delta);
    }
    return delta;
  }

  private final class Delta extends BaseEqualityDeltaWriter {
    private final InternalRecordWrapper keyWrapper = new InternalRecordWrapper(keySchema.asStruct());

    Delta(PartitionKey partition) {
      super(partition, table.schema(), keySchema);
    }

    @Override
    protected StructLike asStructLike(Record row) {
      return wrapper.wrap(row);
    }

    @Override
    protected StructLike asStructLikeKey(Record key) {
      return keyWrapper.wrap(key);
    }
  }
}
