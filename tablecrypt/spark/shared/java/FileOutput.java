package tablecrypt.jvm;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.io.DelegatingPositionOutputStream;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;

/** A new file in Hadoop's file systems, which knows how long it became, and can be taken back. No checksum file is written beside it. */
public class FileOutput implements OutputFile {
  private static final String CAN_ABORT = "fs.capability.outputstream.abortable";
  private static final int BUFFER_SIZE = 64 * 1024;

  private final FileSystem fileSystem;
  private final Path path;
  private FSDataOutputStream opened;
  private long length = -1;

  FileOutput(String location, Configuration conf) throws IOException {
    path = new Path(location);
    FileSystem found = path.getFileSystem(conf);
    fileSystem = found instanceof ChecksumFileSystem ? ((ChecksumFileSystem) found).getRawFileSystem() : found;
  }

  public PositionOutputStream create(long blockSize) throws IOException {
    opened = fileSystem.create(path, false, BUFFER_SIZE, fileSystem.getDefaultReplication(path), Math.max(blockSize, blockSize()));
    return new Counted();
  }

  public PositionOutputStream createOrOverwrite(long blockSize) throws IOException {
    return create(blockSize);
  }

  public boolean supportsBlockSize() {
    return false;
  }

  public long defaultBlockSize() {
    return blockSize();
  }

  public String getPath() {
    return path.toString();
  }

  /** Bytes in the file, once it is closed. */
  long length() {
    return length;
  }

  /** Leave nothing behind of a file that is not wanted, finished or not. */
  void remove() throws IOException {
    if (opened == null) {
      return;
    }
    if (length < 0 && opened.hasCapability(CAN_ABORT)) {
      opened.abort();
    } else if (length < 0) {
      opened.close();
    }
    fileSystem.delete(path, false);
  }

  private long blockSize() {
    return fileSystem.getDefaultBlockSize(path);
  }

  private class Counted extends DelegatingPositionOutputStream {
    Counted() {
      super(opened);
    }

    public long getPos() throws IOException {
      return opened.getPos();
    }

    public void close() throws IOException {
      if (length < 0) {
        long end = opened.getPos();
        opened.close();
        length = end;
      }
    }
  }
}
