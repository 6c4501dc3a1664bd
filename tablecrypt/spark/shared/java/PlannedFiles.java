package tablecrypt.jvm;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.fs.Path;

/**
 * The data files of one read, by number, with their keys and deleted positions. These go nowhere by themselves: the endpoint hands them out
 * for as long as a plan or an RDD holds this object. The layout of `content` is drawn in tablecrypt/spark/shared/task_keys.py.
 */
public class PlannedFiles {
  private final Path[] paths;
  private final byte[][] deletedPositions;
  private final byte[][] tasks;
  private final Map keys = new HashMap();

  PlannedFiles(byte[] content) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(content));
    int count = in.readInt();
    paths = new Path[count];
    deletedPositions = new byte[count][];
    tasks = new byte[count][];
    for (int number = 0; number < count; number++) {
      readFile(number, in);
    }
  }

  private void readFile(int number, DataInputStream in) throws IOException {
    Path path = new Path(new String(readBytes(in), StandardCharsets.UTF_8));
    keys.put(path.toString(), readBytes(in));
    deletedPositions[number] = readBytes(in);
    tasks[number] = readBytes(in);
    paths[number] = path;
  }

  private static byte[] readBytes(DataInputStream in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return bytes;
  }

  /** The key of a file by Path.toString(): length of the DEK (1), DEK, length of the file (8), AAD prefix. Null for a file of another read. */
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

  public String toString() {
    return "tablecrypt(" + paths.length + " files)";
  }
}
