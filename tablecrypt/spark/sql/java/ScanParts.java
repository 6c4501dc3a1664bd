package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Files cut and packed into tasks as Spark does for its own formats. Files that Python reads are not cut. */
class ScanParts {
  private static final InternalRow NO_VALUES = new GenericInternalRow(new Object[0]);

  /** Of a file: row groups are not cut, and parts below their size read nothing. */
  private static final long LEAST_OF_FILE = 1 << 14;

  private final JsonNode plan;
  private final String[] portable;
  private final PlannedFiles planned;
  private final StructType partition;
  private final long most;
  private final long open;
  private final JsonNode grouping;
  private final ArrayList parts = new ArrayList();
  private ArrayList files = new ArrayList();
  private long size = 0;
  private JsonNode key;

  /**
   * @param plan as Python told of it
   * @param portable for each file why Python reads it, or null
   * @param partition the type of `_partition`; null where nobody asks for it
   * @param most how many bytes a task reads
   * @param open as how many bytes opening a file counts
   */
  ScanParts(JsonNode plan, String[] portable, PlannedFiles planned, StructType partition, long most, long open) {
    this.plan = plan;
    this.grouping = plan.required("grouping");
    this.portable = portable;
    this.planned = planned;
    this.partition = partition;
    this.most = most;
    this.open = open;
  }

  /** Add a file. Files of one group have to come one after the other. */
  void add(int number) {
    startGroup(number);
    long length = plan.required("lengths").required(number).asLong();
    long step = portable[number] == null ? Math.max(most, LEAST_OF_FILE) : Math.max(1, length);
    for (long start = 0; start < length; start += step) {
      long part = Math.min(step, length - start);
      if (size > 0 && size + part > most) {
        end();
      }
      files.add(file(number, start, part, length));
      size += part + open;
    }
  }

  private void startGroup(int number) {
    JsonNode next = grouping.isNull() ? null : grouping.required("keys").required(number);
    if (next != null && !next.equals(key)) {
      end();
      key = next;
    }
  }

  InputPartition[] toArray() {
    end();
    return (InputPartition[]) parts.toArray(new InputPartition[0]);
  }

  private ScanFile file(int number, long start, long part, long length) {
    Path path = planned.paths()[number];
    ScanFile file = new ScanFile();
    file.number = number;
    file.location = plan.required("locations").required(number).asText();
    file.part =
        new PartitionedFile(
            NO_VALUES,
            SparkPath.fromPath(path),
            start,
            part,
            new String[0],
            0L,
            length,
            scala.collection.immutable.Map$.MODULE$.empty());
    file.hasDeletes = planned.deletedPositions(number).length > 0;
    file.portable = portable[number];
    file.firstRowId = plan.required("first_row_ids").required(number).asLong(-1);
    file.sequence = plan.required("sequences").required(number).asLong(-1);
    file.spec = plan.required("specs").required(number).asInt();
    file.partition = partition == null ? null : JsonValue.row(plan.required("partitions").required(number), partition);
    return file;
  }

  private StructType keyType() {
    return (StructType) DataType.fromJson(grouping.required("type").asText());
  }

  private void end() {
    if (!files.isEmpty()) {
      ScanFile[] together = (ScanFile[]) files.toArray(new ScanFile[0]);
      parts.add(key == null ? new ScanPart(together) : new KeyedPart(together, JsonValue.row(key, keyType())));
    }
    files = new ArrayList();
    size = 0;
  }
}
