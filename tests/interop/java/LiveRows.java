import org.apache.iceberg.BaseTable;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.parquet.Parquet;

/**
 * Reads a table with the Iceberg Java library, deletes applied, and writes the live rows to one Parquet file.
 *
 * <pre>LiveRows METADATA_LOCATION OUTPUT</pre>
 */
public final class LiveRows {
  private LiveRows() {}

  public static void main(String[] args) throws Exception {
    HadoopFileIO io = new HadoopFileIO(PlainFiles.configuration());
    Table table = new BaseTable(new StaticTableOperations(args[0], io), "table");
    try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build();
        FileAppender<Record> output =
            Parquet.write(io.newOutputFile(args[1]))
                .schema(table.schema())
                .createWriterFunc(GenericParquetWriter::create)
                .overwrite()
                .build()) {
      output.addAll(rows);
    }
  }
}
