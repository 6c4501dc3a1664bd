package tablecrypt.jvm;

import java.io.IOException;
import java.net.URI;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * Hadoop's file system of a store, with a check of each file that is opened (CheckedStream); it reads and does nothing else.
 *
 * s3a://bucket/key is tablecrypt-s3a://bucket/key in it. These names are known to the reader of one read alone: what Spark says of rows and
 * files keeps the names of the store.
 */
public class CheckedFileSystem extends FileSystem {
  private static final String PREFIX = "tablecrypt-";

  private URI uri;

  /** Have a read's configuration know the file systems of these files. */
  static void enable(Configuration conf, Path[] paths) {
    for (int index = 0; index < paths.length; index++) {
      String name = "fs." + checked(paths[index]).toUri().getScheme() + ".impl";
      conf.set(name, "tablecrypt.jvm.CheckedFileSystem");
      // Hadoop would keep the first configuration, with its class loader. The file system behind this one is kept as ever.
      conf.setBoolean(name + ".disable.cache", true);
    }
  }

  /** The name of a stored file in the checked file system. */
  static Path checked(Path stored) {
    String name = stored.toString();
    return new Path(PREFIX + (stored.toUri().getScheme() == null ? ":" : "") + name);
  }

  /** The name that a file has in its store. */
  static Path stored(Path checked) {
    String name = checked.toString();
    if (!name.startsWith(PREFIX)) {
      return checked;
    }
    String rest = name.substring(PREFIX.length());
    return new Path(rest.startsWith(":") ? rest.substring(1) : rest);
  }

  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    uri = name;
  }

  public URI getUri() {
    return uri;
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Path stored = stored(path);
    FileSystem store = stored.getFileSystem(getConf());
    return opened(store.open(stored, bufferSize), store.getFileStatus(stored).getLen(), stored);
  }

  protected CompletableFuture openFileWithOptions(Path path, OpenFileParameters parameters) throws IOException {
    Path stored = stored(path);
    FileSystem store = stored.getFileSystem(getConf());
    FileStatus status = storedStatus(parameters.getStatus(), store, stored);
    FutureDataInputStreamBuilder builder = store.openFile(stored);
    builder.withFileStatus(status);
    Configuration options = parameters.getOptions();
    for (Iterator keys = keys(parameters.getOptionalKeys()); keys.hasNext(); ) {
      String key = (String) keys.next();
      builder.opt(key, options.get(key));
    }
    for (Iterator keys = keys(parameters.getMandatoryKeys()); keys.hasNext(); ) {
      String key = (String) keys.next();
      builder.must(key, options.get(key));
    }
    FSDataInputStream in = (FSDataInputStream) FutureIO.awaitFuture((CompletableFuture) builder.build());
    return CompletableFuture.completedFuture(opened(in, status.getLen(), stored));
  }

  public FileStatus getFileStatus(Path path) throws IOException {
    Path stored = stored(path);
    return new CheckedStatus(stored.getFileSystem(getConf()).getFileStatus(stored), path, ReadKeys.of(getConf(), stored).length());
  }

  /** Without it the store would look the file up once more; with its own status it notices that the file was exchanged. */
  private static FileStatus storedStatus(FileStatus given, FileSystem store, Path stored) throws IOException {
    if (given instanceof CheckedStatus) {
      return ((CheckedStatus) given).stored;
    }
    return store.getFileStatus(stored);
  }

  private FSDataInputStream opened(FSDataInputStream in, long length, Path stored) throws IOException {
    try {
      return new FSDataInputStream(new CheckedStream(in, length, stored.toString(), ReadKeys.of(getConf(), stored)));
    } catch (IOException error) {
      in.close();
      throw error;
    } catch (RuntimeException error) {
      in.close();
      throw error;
    }
  }

  private static Iterator keys(Set keys) {
    return keys.iterator();
  }

  public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress) {
    throw readsOnly();
  }

  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw readsOnly();
  }

  public boolean rename(Path from, Path to) {
    throw readsOnly();
  }

  public boolean delete(Path path, boolean recursive) {
    throw readsOnly();
  }

  public boolean mkdirs(Path path, FsPermission permission) {
    throw readsOnly();
  }

  public FileStatus[] listStatus(Path path) {
    throw readsOnly();
  }

  public void setWorkingDirectory(Path path) {
    throw readsOnly();
  }

  public Path getWorkingDirectory() {
    return new Path(uri.getScheme() + ":/");
  }

  private static UnsupportedOperationException readsOnly() {
    return new UnsupportedOperationException("this file system opens files and does nothing else");
  }

  /** What the store knows of a file, under the name that the file has here, with the length that the table's metadata says. */
  private static class CheckedStatus extends FileStatus {
    final FileStatus stored;

    CheckedStatus(FileStatus stored, Path path, long length) {
      super(length, false, stored.getReplication(), stored.getBlockSize(), stored.getModificationTime(), path);
      this.stored = stored;
    }
  }
}
