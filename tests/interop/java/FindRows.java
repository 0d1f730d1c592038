import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetReaders;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Types.NestedField;

/**
 * Looks for each row of a table by each of its values, with the Iceberg Java library: does the file that holds the row come
 * up in a scan that asks for the value? Prints the partition spec of each file, the number of questions, and each value whose
 * row would not be found, as lines of text. Only for tables without deletes.
 *
 * <pre>FindRows METADATA_LOCATION</pre>
 */
public final class FindRows {
  private FindRows() {}

  public static void main(String[] args) throws Exception {
    HadoopFileIO io = new HadoopFileIO(PlainFiles.configuration());
    Table table = new BaseTable(new StaticTableOperations(args[0], io), "table");
    Schema schema = table.schema();
    InternalRecordWrapper wrapper = new InternalRecordWrapper(schema.asStruct());
    Map<String, Expression> questions = new HashMap<>();
    Map<String, Set<String>> holders = new HashMap<>();
    Set<String> specs = new TreeSet<>();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        String location = task.file().location();
        specs.add("spec " + task.file().specId());
        try (CloseableIterable<Record> rows =
            Parquet.read(io.newInputFile(location))
                .project(schema)
                .createReaderFunc(file -> GenericParquetReaders.buildReader(schema, file))
                .build()) {
          for (Record row : rows) {
            wrapper.wrap(row);
            List<NestedField> columns = schema.columns();
            for (int i = 0; i < columns.size(); i++) {
              Expression question = question(columns.get(i).name(), wrapper.get(i, Object.class));
              questions.put(question.toString(), question);
              holders.computeIfAbsent(question.toString(), none -> new HashSet<>()).add(location);
            }
          }
        }
      }
    }
    specs.forEach(System.out::println);
    System.out.println("asked " + questions.size());
    for (Map.Entry<String, Expression> question : questions.entrySet()) {
      Set<String> missed = new HashSet<>(holders.get(question.getKey()));
      try (CloseableIterable<FileScanTask> tasks = table.newScan().filter(question.getValue()).planFiles()) {
        for (FileScanTask task : tasks) {
          missed.remove(task.file().location());
        }
      }
      if (!missed.isEmpty()) {
        System.out.println("missed " + question.getKey());
      }
    }
  }

  private static Expression question(String column, Object value) {
    if (value == null) {
      return Expressions.isNull(column);
    }
    boolean isNaN = value instanceof Double d && d.isNaN() || value instanceof Float f && f.isNaN();
    return isNaN ? Expressions.isNaN(column) : Expressions.equal(column, value);
  }
}
