package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/** One attempt at one Spark partition: a new file whenever the table partition changes or the file's target size is reached. */
public class WriteAttempt {
  private static final int ROWS_BETWEEN_SIZE_CHECKS = 1000;

  private final WriteJob job;
  private final int task;
  private final long attempt;
  private final Configuration conf;
  private final RequiredValues required;
  private final PartitionedRows split;
  private final long targetSize;
  private final String unique = UUID.randomUUID().toString();
  private final ArrayList files = new ArrayList();
  private EncryptedFile open;

  WriteAttempt(WriteJob job, TaskContext context) {
    this.job = job;
    task = context.partitionId();
    attempt = context.taskAttemptId();
    conf = job.configuration();
    required = RequiredValues.ofRows(job.schema());
    split = new PartitionedRows(job.schema(), job.partitionSchema());
    targetSize = job.number(WriteJob.TARGET_FILE_SIZE);
  }

  byte[] run(Iterator rows) throws Exception {
    while (rows.hasNext()) {
      write((InternalRow) rows.next());
    }
    closeFile();
    byte[] result = EncryptedResult.encrypt(job.publicKey, job.id, task, described());
    // Once the write has ended nobody takes the result, and so nobody would know the files: then this fails, and they are removed.
    DriverClient.request(job.coordinator, Requests.finish(task, attempt));
    return result;
  }

  /** Remove what was written, as far as the store lets it be: the error that made the attempt fail is the one to tell of. */
  void removeFiles() {
    for (int index = 0; index < files.size(); index++) {
      try {
        ((EncryptedFile) files.get(index)).remove();
      } catch (Exception error) {
        LoggerFactory.getLogger(WriteAttempt.class).warn("a file of a failed write remains: " + error);
      }
    }
  }

  private void write(InternalRow row) throws IOException {
    boolean isOfNextPartition = split.moveTo(row);
    if (open != null && (isOfNextPartition || isFull())) {
      closeFile();
    }
    if (open == null) {
      openFile();
    }
    InternalRow stored = split.stored(row);
    required.check(stored);
    open.write(stored);
  }

  private boolean isFull() {
    return open.rows() % ROWS_BETWEEN_SIZE_CHECKS == 0 && open.size() >= targetSize;
  }

  private void openFile() throws IOException {
    byte[] partition = split.partition();
    String request = Requests.location(task, attempt, unique, files.size(), partition);
    open = new EncryptedFile(job, new String(DriverClient.request(job.coordinator, request), "UTF-8"), partition);
    files.add(open);
    open.open(conf);
  }

  private void closeFile() throws IOException {
    if (open != null) {
      open.close();
      open = null;
    }
  }

  private byte[] described() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    out.writeLong(attempt);
    out.writeInt(files.size());
    for (int index = 0; index < files.size(); index++) {
      ((EncryptedFile) files.get(index)).describe(out);
    }
    return content.toByteArray();
  }
}
