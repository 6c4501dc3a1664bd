package tablecrypt.jvm;

import org.apache.parquet.column.ColumnWriteStore;
import org.apache.spark.sql.catalyst.InternalRow;

/** How the rows of a file become values of Parquet's columns. */
interface FileRecords {
  /** The rows that follow belong to these columns, which are of one row group. */
  void begin(ColumnWriteStore columns);

  void add(InternalRow row);

  /** All values of the row group are to be in its columns now. */
  void end();
}
