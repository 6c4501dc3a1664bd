package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A write whose tasks may run: Python gives their files locations, and ends it with a commit, or by removing all of these files.
 *
 * Where the planner died before it was asked to commit, the driver removes them by itself.
 */
class OpenWrite {
  private static final Logger LOG = LoggerFactory.getLogger(OpenWrite.class);

  private final Planner planner;
  private final String handle;
  private final WriteCoordinator coordinator;
  private final Locations locations;
  private final Configuration conf;
  private final SqlWriterFactory factory;
  private final byte[] forPython;
  private boolean mayBeCommitted = false;

  /**
   * @param begin the request begin_write
   * @param alignment what brings rows to the table's columns; null where they have these
   */
  OpenWrite(SqlWrite write, ObjectNode begin, RowAlignment alignment) {
    planner = write.table.planner;
    PlannerResponse response = planner.ask(begin);
    JsonNode told = response.json;
    forPython = response.bytes;
    handle = told.required("write").asText();
    String name = "tablecrypt-write-" + handle;
    coordinator = new WriteCoordinator(name);
    locations = new Locations();
    try {
      conf = WriteCoordinator.configuration((SparkSession) org.apache.spark.sql.SparkSession.active());
      WriteJob job =
          new WriteJob(
              name,
              told.required("id").binaryValue(),
              told.required("public_key").binaryValue(),
              told.required("schema").asText(),
              (HashMap) Planner.JSON.convertValue(told.required("inner_ids"), HashMap.class),
              (HashMap) Planner.JSON.convertValue(told.required("settings"), HashMap.class),
              conf);
      JsonNode partition = write.hasRows() ? told.required("partition") : Planner.JSON.createArrayNode();
      boolean keepsLineage = told.required("lineage").asBoolean();
      PythonCommand python = told.required("python").asBoolean() ? write.table.python() : null;
      StructType rows = alignment == null ? write.info.schema() : alignment.schema;
      factory = new SqlWriterFactory(job, new RowPartition(partition, rows), keepsLineage, alignment, python, write.groups());
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    locations.start();
  }

  SqlWriterFactory factory() {
    return factory;
  }

  /** Commit the tasks' results, and return the response. Whatever becomes of it, Python sees to the files from here on. */
  JsonNode commit(ObjectNode fields, WriterCommitMessage[] messages) {
    close();
    ObjectNode commit = request("commit_write");
    commit.setAll(fields);
    byte[] content = encoded(messages);
    mayBeCommitted = true;
    return planner.ask(commit, content).json;
  }

  /** Remove the files, unless the commit was asked for. */
  void abort() {
    if (mayBeCommitted) {
      return;
    }
    close();
    try {
      planner.ask(request("abort_write"));
    } catch (RuntimeException error) {
      LOG.warn("the planner does not remove the files of a failed write, so the driver does: " + error.getMessage());
      locations.remove();
    }
  }

  private ObjectNode request(String operation) {
    return Planner.request(operation).put("write", handle);
  }

  private static byte[] encoded(WriterCommitMessage[] messages) {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    try {
      DataOutputStream out = new DataOutputStream(content);
      for (int index = 0; index < messages.length; index++) {
        byte[] result = ((PythonWriterCommitMessage) messages[index]).pickledMessage();
        out.writeInt(result.length);
        out.write(result);
      }
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    return content.toByteArray();
  }

  /** After this no task gets a location, and none can finish. */
  private void close() {
    coordinator.close();
    boolean interrupted = false;
    while (locations.isAlive()) {
      try {
        locations.join();
      } catch (InterruptedException error) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Responds to tasks with what Python says, and remembers the locations. */
  private class Locations extends Thread {
    private final ArrayList given = new ArrayList();

    Locations() {
      super("tablecrypt-locations");
      setDaemon(true);
    }

    public void run() {
      try {
        PendingRequest pending = coordinator.next();
        while (pending != null) {
          respond(pending);
          pending = coordinator.next();
        }
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }

    private void respond(PendingRequest pending) {
      try {
        if (Requests.isOf(Requests.parse(pending.text()), Requests.WRITING)) {
          pending.respond(forPython);
          return;
        }
        ObjectNode asked = request("file_location").put("request", pending.text());
        String location = planner.ask(asked).json.required("location").asText();
        given.add(location);
        pending.respond(location.getBytes("UTF-8"));
      } catch (Exception error) {
        pending.refuse(error.getMessage());
      }
    }

    /** Remove the files that are there. Call this after the thread has ended. */
    void remove() {
      for (int index = 0; index < given.size(); index++) {
        try {
          Path path = new Path((String) given.get(index));
          path.getFileSystem(conf).delete(path, false);
        } catch (IOException error) {
          LOG.warn("a file of a failed write remains: " + error);
        }
      }
    }
  }
}
