package tablecrypt.jvm;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;

/**
 * The data files of one read, as the driver planned them: nothing is listed, globbed, or looked up in the store.
 *
 * Each file is a partition of its own, whose only value is the file's number: so a row says which file it is from without a path that
 * would have to be compared. Keys and deleted positions are kept here too and go nowhere by themselves: the endpoint hands them out for as
 * long as a plan or an RDD holds this object. The layout of `content` is drawn in tablecrypt/spark/jvm/keys.py.
 */
public class PlannedFiles implements FileIndex {
  private static final long BLOCK_SIZE = 128L * 1024 * 1024;

  private final StructType partitionSchema;
  private final Path[] paths;
  private final PartitionDirectory[] directories;
  private final byte[][] deletedPositions;
  private final byte[][] tasks;
  private final Map keys = new HashMap();
  private long totalLength = 0;

  public PlannedFiles(String numberColumn, byte[] content) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(content));
    int count = in.readInt();
    partitionSchema = new StructType().add(numberColumn, DataTypes.IntegerType, false);
    paths = new Path[count];
    directories = new PartitionDirectory[count];
    deletedPositions = new byte[count][];
    tasks = new byte[count][];
    for (int number = 0; number < count; number++) {
      readFile(number, in);
    }
  }

  private void readFile(int number, DataInputStream in) throws IOException {
    Path path = new Path(new String(readBytes(in), StandardCharsets.UTF_8));
    long length = in.readLong();
    keys.put(path.toString(), readBytes(in));
    deletedPositions[number] = readBytes(in);
    tasks[number] = readBytes(in);
    FileStatus status = new FileStatus(length, false, 1, BLOCK_SIZE, 0L, path);
    InternalRow values = new GenericInternalRow(new Object[] {Integer.valueOf(number)});
    paths[number] = path;
    directories[number] = PartitionDirectory.apply(values, new FileStatus[] {status});
    totalLength += length;
  }

  private static byte[] readBytes(DataInputStream in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return bytes;
  }

  /** The key of a file by Path.toString(): length of the DEK (1), DEK, AAD prefix. Null for a file of another read. */
  public byte[] key(String path) {
    return (byte[]) keys.get(path);
  }

  /** A Roaring bitmap of the positions that are deleted from a file. Null for a number that no file has. */
  public byte[] deletedPositions(int number) {
    return number < 0 || number >= deletedPositions.length ? null : deletedPositions[number];
  }

  /** What Python reads a file with; empty for a file that Spark's own reader serves. Null for a number that no file has. */
  byte[] task(int number) {
    return number < 0 || number >= tasks.length ? null : tasks[number];
  }

  Path[] paths() {
    return paths;
  }

  public Seq rootPaths() {
    return ArraySeq$.MODULE$.unsafeWrapArray(paths);
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    return ArraySeq$.MODULE$.unsafeWrapArray(directories);
  }

  public String[] inputFiles() {
    String[] names = new String[paths.length];
    for (int number = 0; number < names.length; number++) {
      names[number] = paths[number].toUri().toString();
    }
    return names;
  }

  public void refresh() {
    // A snapshot's files do not change.
  }

  public long sizeInBytes() {
    return totalLength;
  }

  public StructType partitionSchema() {
    return partitionSchema;
  }

  public String toString() {
    return "tablecrypt(" + paths.length + " files)";
  }
}
