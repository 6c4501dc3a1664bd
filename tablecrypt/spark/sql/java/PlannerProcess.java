package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The Python process beside this driver that knows catalogs, plans scans and commits. Requests and responses travel over its stdin and stdout,
 * which no other process can read; many may be under way at once. The process ends when this JVM does. The frames and operations are
 * documented in tablecrypt/spark/sql/process.py.
 */
class PlannerProcess extends Planner implements Runnable {
  private static final int BUFFER = 65536;
  private static final int HEAD_AFTER_LENGTH = 8;
  private static final Map RUNNING = new HashMap();

  private final Process process;
  private final DataOutputStream out;
  private final Map waiting = new ConcurrentHashMap();
  private int lastId = 0;
  private Throwable end;

  private PlannerProcess(String python, List path) throws IOException {
    // -P: a module in the driver's working directory must not take the place of an installed one.
    ProcessBuilder builder = new ProcessBuilder(new String[] {python, "-P", "-m", "tablecrypt.spark.sql"});
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    if (!path.isEmpty()) {
      builder.environment().put("PYTHONPATH", String.join(File.pathSeparator, path));
    }
    process = builder.start();
    out = new DataOutputStream(new BufferedOutputStream(process.getOutputStream(), BUFFER));
    Thread receiving = new Thread(this, "tablecrypt-planner");
    receiving.setDaemon(true);
    receiving.start();
  }

  static PlannerProcess of(CatalogSettings settings) {
    return of(settings.python, settings.path);
  }

  /** The process with this interpreter, started when it is first needed and after it died. */
  static PlannerProcess of(String python, List path) {
    synchronized (RUNNING) {
      ArrayList key = new ArrayList(path);
      key.add(python);
      PlannerProcess planner = (PlannerProcess) RUNNING.get(key);
      if (planner == null || !planner.process.isAlive()) {
        planner = start(python, path);
        RUNNING.put(key, planner);
      }
      return planner;
    }
  }

  /** A process beside the others. */
  static PlannerProcess start(CatalogSettings settings) {
    return start(settings.python, settings.path);
  }

  private static PlannerProcess start(String python, List path) {
    try {
      return new PlannerProcess(python, path);
    } catch (IOException error) {
      throw new IllegalStateException("Python for the catalog does not start: " + error.getMessage(), error);
    }
  }

  /** End the process. Requests that wait for it fail. */
  void close() {
    process.destroy();
  }

  synchronized void send(byte[] json, byte[] bytes, CompletableFuture response) throws IOException {
    if (end != null) {
      throw new IOException(end.getMessage(), end);
    }
    lastId++;
    waiting.put(Integer.valueOf(lastId), response);
    out.writeInt(HEAD_AFTER_LENGTH + json.length + bytes.length);
    out.writeInt(lastId);
    out.writeInt(json.length);
    out.write(json);
    out.write(bytes);
    out.flush();
  }

  /** Hands out responses until the process ends. */
  public void run() {
    Throwable reason = null;
    try {
      DataInputStream in = new DataInputStream(new BufferedInputStream(process.getInputStream(), BUFFER));
      while (true) {
        receive(in);
      }
    } catch (Throwable error) {
      reason = error instanceof EOFException ? new IllegalStateException("it has ended; the driver's stderr says why") : error;
    }
    process.destroy();
    endAll(reason);
  }

  private void receive(DataInputStream in) throws IOException {
    byte[] frame = new byte[in.readInt() - HEAD_AFTER_LENGTH];
    CompletableFuture response = (CompletableFuture) waiting.remove(Integer.valueOf(in.readInt()));
    int length = in.readInt();
    in.readFully(frame);
    JsonNode json = JSON.readTree(frame, 0, length);
    byte[] bytes = new byte[frame.length - length];
    System.arraycopy(frame, length, bytes, 0, bytes.length);
    complete(response, json, bytes);
  }

  /** After this no request waits, and none is sent. */
  private synchronized void endAll(Throwable reason) {
    end = reason;
    Object[] left = waiting.values().toArray();
    for (int index = 0; index < left.length; index++) {
      ((CompletableFuture) left[index]).completeExceptionally(reason);
    }
  }
}
