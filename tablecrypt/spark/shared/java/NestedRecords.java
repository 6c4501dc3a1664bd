package tablecrypt.jvm;

import org.apache.parquet.column.ColumnWriteStore;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.MessageColumnIO;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows with structs, lists or maps in them: Spark's own writer names each field and value to Parquet, which finds the levels. */
class NestedRecords implements FileRecords {
  private final RowSupport support;
  private final MessageColumnIO fields;
  private RecordConsumer consumer;

  NestedRecords(RowSupport support, MessageType schema) {
    this.support = support;
    fields = new ColumnIOFactory().getColumnIO(schema);
  }

  public void begin(ColumnWriteStore columns) {
    consumer = fields.getRecordWriter(columns);
    support.prepareForWrite(consumer);
  }

  public void add(InternalRow row) {
    support.write(row);
  }

  public void end() {
    consumer.flush();
  }
}
