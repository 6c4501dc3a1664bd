package tablecrypt.jvm;

import java.io.IOException;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.RecordBinaryComparator;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import scala.collection.Iterator;

/**
 * Rows that are written once a task has seen all rows. Spark's own sorter brings those of one partition together, on disk where memory does
 * not suffice, and gives its memory and files back when the task ends.
 */
class LateRows {
  private final UnsafeProjection projection;
  private final UnsafeExternalRowSorter sorter;
  private final PartitionPrefix prefix = new PartitionPrefix();

  LateRows(StructType rows) throws IOException {
    projection = UnsafeProjection.create(rows);
    long pageSize = TaskContext.get().taskMemoryManager().pageSizeBytes();
    sorter = UnsafeExternalRowSorter.createWithRecordComparator(rows, new Comparators(), PrefixComparators.LONG, prefix, pageSize, true);
  }

  /** @param partition the same number for all rows of a partition, and seldom for those of another */
  void add(InternalRow row, long partition) throws IOException {
    prefix.of = partition;
    sorter.insertRow(projection.apply(row));
  }

  /** All rows, partition by partition. */
  Iterator sorted() throws IOException {
    return sorter.sort();
  }

  private static class PartitionPrefix extends UnsafeExternalRowSorter.PrefixComputer {
    private final Prefix answer = new Prefix();
    private long of;

    public Prefix computePrefix(InternalRow row) {
      answer.value = of;
      answer.isNull = false;
      return answer;
    }
  }

  /** What tells rows apart that have one number: any order will do. */
  private static class Comparators implements Supplier {
    public Object get() {
      return new RecordBinaryComparator();
    }
  }
}
