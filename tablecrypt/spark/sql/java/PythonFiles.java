package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * The files of one attempt at one task that Python writes, since they have protected columns. The operations are documented in
 * tablecrypt/spark/sql/writes/python_writes.py.
 */
class PythonFiles extends TaskFiles {
  private final PythonCommand command;
  private ArrowRows rows;
  private Planner python;
  private String writer;

  PythonFiles(WriteJob job, int task, long attempt, PythonCommand command) {
    super(job, task, attempt);
    this.command = command;
  }

  NewFile file(String location, byte[] partition) throws IOException {
    if (writer == null) {
      start();
    }
    return new PythonFile(this, rows, location, partition);
  }

  private void start() throws IOException {
    byte[] table = DriverClient.request(job.coordinator, Requests.writing(task, attempt));
    python = command.process();
    rows = new ArrowRows(job.schema(), job.number(WriteJob.TARGET_FILE_SIZE));
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    NewFile.writeBytes(out, table);
    out.write(rows.schema());
    writer = python.ask(Planner.request("start_writing"), content.toByteArray()).json.required("writer").asText();
  }

  /** A request about this attempt. */
  ObjectNode request(String operation) {
    return Planner.request(operation).put("writer", writer);
  }

  /** Send a request about the file at a location. */
  PlannerResponse ask(ObjectNode request, String location, byte[] content) throws IOException {
    try {
      return python.ask(request, content);
    } catch (RuntimeException error) {
      throw new IOException(location + " is written by Python, because the table has protected columns: " + error.getMessage(), error);
    }
  }

  void remove() {
    // Spark interrupts the thread of a task that it kills, and what waits in it.
    boolean isInterrupted = Thread.interrupted();
    stop(false);
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  void end() {
    stop(true);
  }

  private void stop(boolean keep) {
    if (rows != null) {
      rows.close();
    }
    if (writer == null) {
      return;
    }
    ObjectNode request = request("stop_writing").put("keep", keep);
    writer = null;
    try {
      python.ask(request);
    } catch (PlannerError error) {
      // Python gave the attempt up, and deleted its files: a task that ends well would have them committed.
      if (keep) {
        throw error;
      }
    } catch (RuntimeException error) {
      // The process has ended. It, or the driver, removes what nobody keeps.
      return;
    }
  }
}
