package tablecrypt.jvm;

import java.util.BitSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** Makes the scan's rows of what is stored in one file and what is known of it. */
class FileRows {
  private final ScanColumns layout;
  private final ScanFile file;
  private final BitSet deleted;
  private final boolean marksDeleted;
  private final UTF8String location;
  private long dropped = 0;

  /**
   * @param deleted positions of rows that are gone; null where there are none
   */
  FileRows(ScanColumns layout, ScanFile file, BitSet deleted) {
    this.layout = layout;
    this.file = file;
    this.deleted = deleted;
    this.marksDeleted = layout.has(ScanColumns.DELETED);
    this.location = UTF8String.fromString(file.location);
  }

  /** How many rows of the file were left out so far, because they are deleted. */
  long dropped() {
    return dropped;
  }

  // Batches

  /** The scan's columns of a stored batch; null where none of its rows is left. */
  ColumnarBatch batch(ColumnarBatch stored) {
    int[] live = deleted == null || marksDeleted ? null : live(stored);
    int count = live == null ? stored.numRows() : live.length;
    dropped += stored.numRows() - count;
    if (count == 0) {
      return null;
    }
    boolean isWhole = live == null || count == stored.numRows();
    ColumnVector[] columns = new ColumnVector[layout.kinds.length];
    for (int index = 0; index < columns.length; index++) {
      ColumnVector column = column(stored, index);
      columns[index] = isWhole || column instanceof ConstantColumnVector ? column : new LiveVector(column, live);
    }
    return new ColumnarBatch(columns, count);
  }

  private int[] live(ColumnarBatch stored) {
    ColumnVector positions = stored.column(layout.position);
    int[] live = new int[stored.numRows()];
    int count = 0;
    for (int row = 0; row < live.length; row++) {
      if (!deleted.get((int) positions.getLong(row))) {
        live[count++] = row;
      }
    }
    return java.util.Arrays.copyOf(live, count);
  }

  private ColumnVector column(ColumnarBatch stored, int index) {
    int count = stored.numRows();
    switch (layout.kinds[index]) {
      case ScanColumns.STORED:
        return stored.column(layout.sources[index]);
      case ScanColumns.POSITION:
        return stored.column(layout.position);
      case ScanColumns.ROW_ID:
        return inherited(stored.column(layout.rowId), stored.column(layout.position), file.firstRowId, count);
      case ScanColumns.LAST_UPDATED:
        return inherited(stored.column(layout.lastUpdated), null, file.sequence, count);
      case ScanColumns.DELETED:
        return marks(stored, count);
      default:
        return constant(count, layout.types[index], known(layout.kinds[index]));
    }
  }

  /** The stored value of each row, else what it inherits of its file: a number, and its position where there are positions. */
  private static ColumnVector inherited(ColumnVector stored, ColumnVector positions, long first, int count) {
    OnHeapColumnVector values = new OnHeapColumnVector(count, DataTypes.LongType);
    for (int row = 0; row < count; row++) {
      if (!stored.isNullAt(row)) {
        values.putLong(row, stored.getLong(row));
      } else if (first < 0) {
        values.putNull(row);
      } else {
        values.putLong(row, positions == null ? first : first + positions.getLong(row));
      }
    }
    return values;
  }

  private ColumnVector marks(ColumnarBatch stored, int count) {
    OnHeapColumnVector marks = new OnHeapColumnVector(count, DataTypes.BooleanType);
    for (int row = 0; row < count; row++) {
      marks.putBoolean(row, deleted != null && deleted.get((int) stored.column(layout.position).getLong(row)));
    }
    return marks;
  }

  private static ConstantColumnVector constant(int count, DataType type, Object value) {
    ConstantColumnVector column = new ConstantColumnVector(count, type);
    if (!(type instanceof StructType)) {
      ColumnVectorUtils.populate(column, new GenericInternalRow(new Object[] {value}), 0);
      return column;
    }
    StructType struct = (StructType) type;
    column.setNotNull();
    for (int index = 0; index < struct.length(); index++) {
      DataType field = struct.fields()[index].dataType();
      column.setChild(index, constant(count, field, ((InternalRow) value).get(index, field)));
    }
    return column;
  }

  // Rows

  /** The scan's row of a stored one; null where it is deleted. */
  InternalRow row(InternalRow stored) {
    long position = layout.position < 0 ? -1 : stored.getLong(layout.position);
    boolean isDeleted = deleted != null && deleted.get((int) position);
    if (isDeleted && !marksDeleted) {
      dropped++;
      return null;
    }
    Object[] values = new Object[layout.kinds.length];
    for (int index = 0; index < values.length; index++) {
      values[index] = value(stored, index, position, isDeleted);
    }
    return new GenericInternalRow(values);
  }

  private Object value(InternalRow stored, int index, long position, boolean isDeleted) {
    switch (layout.kinds[index]) {
      case ScanColumns.STORED:
        return stored.get(layout.sources[index], layout.types[index]);
      case ScanColumns.POSITION:
        return Long.valueOf(position);
      case ScanColumns.ROW_ID:
        return inherited(stored, layout.rowId, file.firstRowId < 0 ? -1 : file.firstRowId + position);
      case ScanColumns.LAST_UPDATED:
        return inherited(stored, layout.lastUpdated, file.sequence);
      case ScanColumns.DELETED:
        return Boolean.valueOf(isDeleted);
      default:
        return known(layout.kinds[index]);
    }
  }

  private static Object inherited(InternalRow stored, int source, long value) {
    if (!stored.isNullAt(source)) {
      return Long.valueOf(stored.getLong(source));
    }
    return value < 0 ? null : Long.valueOf(value);
  }

  /** What is the same for all rows of the file. */
  private Object known(int kind) {
    switch (kind) {
      case ScanColumns.FILE:
        return location;
      case ScanColumns.SPEC_ID:
        return Integer.valueOf(file.spec);
      default:
        return file.partition;
    }
  }
}
