package tablecrypt.jvm;

import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;
import org.slf4j.LoggerFactory;

/** The files of one attempt at one task: a new one whenever the table partition changes or the file's target size is reached. */
class TaskFiles {
  private static final int ROWS_BETWEEN_SIZE_CHECKS = 1000;

  final WriteJob job;
  final int task;
  final long attempt;
  private final Configuration conf;
  private final RequiredValues required;
  private final long targetSize;
  private final String unique = UUID.randomUUID().toString();
  private final ArrayList files = new ArrayList();
  private String where = "an encrypted table";
  private byte[] partition = new byte[0];
  private NewFile open;

  TaskFiles(WriteJob job, int task, long attempt) {
    this.job = job;
    this.task = task;
    this.attempt = attempt;
    conf = job.configuration();
    required = RequiredValues.ofRows(job.schema());
    targetSize = job.number(WriteJob.TARGET_FILE_SIZE);
  }

  /** A file at the location that the driver gave. */
  NewFile file(String location, byte[] partition) throws IOException {
    return new EncryptedFile(job, location, partition);
  }

  /** The rows that follow are of this partition; written_files.py draws its values. */
  void startPartition(byte[] values) throws IOException {
    close();
    partition = values;
  }

  void write(InternalRow stored) throws IOException {
    if (open != null && open.rows() % ROWS_BETWEEN_SIZE_CHECKS == 0 && open.size() >= targetSize) {
      close();
    }
    required.check(stored);
    if (open == null) {
      String request = Requests.location(task, attempt, unique, files.size(), partition);
      where = new String(DriverClient.request(job.coordinator, request), "UTF-8");
      open = file(where, partition);
      files.add(open);
      open.open(conf);
    }
    open.write(stored);
  }

  /** The file that was written last, for errors. */
  String where() {
    return where;
  }

  /** Finish the open file. */
  void close() throws IOException {
    if (open != null) {
      open.close();
      open = null;
    }
  }

  /** Write what the driver needs to know of the closed files. */
  void describe(DataOutputStream out) throws IOException {
    out.writeInt(files.size());
    for (int index = 0; index < files.size(); index++) {
      ((NewFile) files.get(index)).describe(out);
    }
  }

  /** Remove what was written, as far as the store lets it be: the error that made the attempt fail is the one to tell of. */
  void remove() {
    for (int index = 0; index < files.size(); index++) {
      try {
        ((NewFile) files.get(index)).remove();
      } catch (Exception error) {
        LoggerFactory.getLogger(TaskFiles.class).warn("a file of a failed write remains: " + error);
      }
    }
  }

  /** Nothing is written or removed any more. */
  void end() {
    // The files are closed.
  }
}
