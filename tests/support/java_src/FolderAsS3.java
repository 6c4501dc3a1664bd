package tablecrypt.tests;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** s3://bucket/key as the file bucket/key of the first of the folders in `tablecrypt.tests.s3` that has such a bucket. */
public class FolderAsS3 extends RawLocalFileSystem {
  private URI bucket;

  public void initialize(URI uri, Configuration conf) throws IOException {
    super.initialize(uri, conf);
    bucket = URI.create(uri.getScheme() + "://" + uri.getAuthority());
  }

  public URI getUri() {
    // The constructor of the superclass asks before a bucket is known.
    return bucket == null ? super.getUri() : bucket;
  }

  public String getScheme() {
    return "s3";
  }

  public FileStatus getFileStatus(Path path) throws IOException {
    FileStatus file = super.getFileStatus(path);
    return new FileStatus(file.getLen(), file.isDirectory(), 1, file.getBlockSize(), file.getModificationTime(), path);
  }

  public File pathToFile(Path path) {
    String[] folders = getConf().getStrings("tablecrypt.tests.s3");
    for (int index = 0; index < folders.length; index++) {
      File folder = new File(folders[index], bucket.getAuthority());
      if (folder.exists()) {
        return new File(folder, path.toUri().getPath());
      }
    }
    return new File("/nonexistent" + path.toUri().getPath());
  }
}
