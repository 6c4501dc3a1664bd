package tablecrypt.jvm;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What is read of a file, and which of that, or of what is known of the file, each column of the scan is.
 *
 * read = the table's columns in the scan's order | _row_id | _last_updated_sequence_number | the row's position, each where it is needed
 */
class ScanColumns implements Serializable {
  static final int STORED = 0;
  static final int FILE = 1;
  static final int POSITION = 2;
  static final int SPEC_ID = 3;
  static final int ROW_ID = 4;
  static final int LAST_UPDATED = 5;
  static final int PARTITION = 6;
  static final int DELETED = 7;
  private static final long ROW_ID_FIELD = 2147483540L;
  private static final long LAST_UPDATED_FIELD = 2147483539L;
  private static final Map KINDS = kinds();

  /** The columns to read, with field ids, under names that filters cannot mistake. */
  final StructType read;
  final int[] kinds;
  /** For each column of the table, where in `read` it is. */
  final int[] sources;
  final DataType[] types;
  /** Where in `read` these are, or -1. */
  final int rowId;
  final int lastUpdated;
  final int position;

  /**
   * @param columns the scan's
   * @param table the table's, which win over metadata columns of the same name
   * @param stored the table's columns among the scan's, with field ids, under the names to read them by
   * @param withDeletes whether rows of some file are deleted
   */
  ScanColumns(StructType columns, StructType table, StructType stored, boolean withDeletes) {
    kinds = new int[columns.length()];
    sources = new int[columns.length()];
    types = new DataType[columns.length()];
    int found = 0;
    for (int index = 0; index < kinds.length; index++) {
      StructField column = columns.fields()[index];
      boolean isStored = table.getFieldIndex(column.name()).isDefined();
      kinds[index] = isStored ? STORED : ((Integer) KINDS.get(column.name())).intValue();
      types[index] = column.dataType();
      sources[index] = isStored ? found++ : -1;
    }
    StructType all = stored;
    rowId = has(ROW_ID) ? all.length() : -1;
    all = has(ROW_ID) ? all.add(lineage("_row_id", ROW_ID_FIELD)) : all;
    lastUpdated = has(LAST_UPDATED) ? all.length() : -1;
    all = has(LAST_UPDATED) ? all.add(lineage("_last_updated_sequence_number", LAST_UPDATED_FIELD)) : all;
    boolean withPositions = withDeletes || has(POSITION) || has(ROW_ID) || has(DELETED);
    position = withPositions ? all.length() : -1;
    read = withPositions ? all.add(positions()) : all;
  }

  private static Map kinds() {
    HashMap kinds = new HashMap();
    kinds.put("_file", Integer.valueOf(FILE));
    kinds.put("_pos", Integer.valueOf(POSITION));
    kinds.put("_spec_id", Integer.valueOf(SPEC_ID));
    kinds.put("_row_id", Integer.valueOf(ROW_ID));
    kinds.put("_last_updated_sequence_number", Integer.valueOf(LAST_UPDATED));
    kinds.put("_partition", Integer.valueOf(PARTITION));
    kinds.put("_deleted", Integer.valueOf(DELETED));
    return kinds;
  }

  boolean has(int kind) {
    for (int index = 0; index < kinds.length; index++) {
      if (kinds[index] == kind) {
        return true;
      }
    }
    return false;
  }

  /** The type of `_partition`; null where it is not asked for. */
  StructType partitionType() {
    for (int index = 0; index < kinds.length; index++) {
      if (kinds[index] == PARTITION) {
        return (StructType) types[index];
      }
    }
    return null;
  }

  private static StructField lineage(String name, long id) {
    return new StructField(name, DataTypes.LongType, true, new MetadataBuilder().putLong("parquet.field.id", id).build());
  }

  private static StructField positions() {
    return new StructField(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType, true, Metadata.empty());
  }
}
