package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;

/** One attempt at one Spark partition. */
public class WriteAttempt {
  private static final int NO_DELETES = 0;

  private final WriteJob job;
  private final int task;
  private final long attempt;
  private final PartitionedRows split;
  private final TaskFiles files;

  WriteAttempt(WriteJob job, TaskContext context) {
    this.job = job;
    task = context.partitionId();
    attempt = context.taskAttemptId();
    split = new PartitionedRows(job.schema(), job.partitionSchema());
    files = new TaskFiles(job, task, attempt);
  }

  byte[] run(Iterator rows) {
    while (rows.hasNext()) {
      // What the rows' own plan raises stays as it is.
      store((InternalRow) rows.next());
    }
    return finish();
  }

  private void store(InternalRow row) {
    try {
      if (split.moveTo(row)) {
        files.startPartition(split.partition());
      }
      files.write(split.stored(row));
    } catch (Throwable error) {
      throw TaskErrors.writing(files.where(), error);
    }
  }

  private byte[] finish() {
    try {
      files.close();
      byte[] result = EncryptedResult.encrypt(job.publicKey, job.id, task, described());
      // Once the write has ended nobody takes the result, and so nobody would know the files: then this fails, and they are removed.
      DriverClient.request(job.coordinator, Requests.finish(task, attempt));
      return result;
    } catch (Throwable error) {
      throw TaskErrors.writing(files.where(), error);
    }
  }

  void removeFiles() {
    files.remove();
  }

  private byte[] described() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    out.writeLong(attempt);
    files.describe(out);
    out.writeInt(NO_DELETES);
    return content.toByteArray();
  }
}
