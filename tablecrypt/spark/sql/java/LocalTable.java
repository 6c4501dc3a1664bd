package tablecrypt.jvm;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Rows that Python sent as an Arrow stream: those of a metadata table, or what a procedure returns. No executor has part in reading them. */
class LocalTable implements SupportsRead, ScanBuilder, LocalScan {
  private final String name;
  private StructType schema;
  private InternalRow[] rows;

  LocalTable(String name, byte[] stream) {
    this.name = name;
    BufferAllocator memory = ArrowUtils.rootAllocator().newChildAllocator("tablecrypt", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), memory);
    try {
      read(reader);
    } catch (IOException error) {
      throw new IllegalStateException(name + ": the planner sent no Arrow stream", error);
    } finally {
      close(reader);
      memory.close();
    }
  }

  private void read(ArrowStreamReader reader) throws IOException {
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    schema = ArrowUtils.fromArrowSchema(root.getSchema());
    UnsafeProjection copied = UnsafeProjection.create(schema);
    ArrayList found = new ArrayList();
    while (reader.loadNextBatch()) {
      ColumnVector[] columns = new ColumnVector[schema.length()];
      for (int index = 0; index < columns.length; index++) {
        columns[index] = new ArrowColumnVector((FieldVector) root.getFieldVectors().get(index));
      }
      Iterator each = new ColumnarBatch(columns, root.getRowCount()).rowIterator();
      while (each.hasNext()) {
        found.add(copied.apply((InternalRow) each.next()).copy());
      }
    }
    rows = (InternalRow[]) found.toArray(new InternalRow[0]);
  }

  private static void close(ArrowStreamReader reader) {
    try {
      reader.close();
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    HashSet known = new HashSet();
    known.add(TableCapability.BATCH_READ);
    return known;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return this;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return schema;
  }

  public InternalRow[] rows() {
    return rows;
  }
}
