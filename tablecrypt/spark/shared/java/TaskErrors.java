package tablecrypt.jvm;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import javax.crypto.AEADBadTagException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a task that fails raises: one line, with the cause in it.
 *
 * Spark hands a SparkRuntimeException of a task to the program as it is, and others within a "Job aborted" of a hundred lines. It prints the
 * stack of each attempt at each task three times. So the error has no stack, and what was caught is logged once with its own. The class is
 * Spark's, because a Connect server does not know the classes of a session's jars when it reads the error.
 */
class TaskErrors {
  private static final Logger LOG = LoggerFactory.getLogger(TaskErrors.class);
  private static final Pattern OF_PYTHON = Pattern.compile("[A-Z][A-Za-z]*(Error|Exception): .*", Pattern.DOTALL);
  private static final int MOST_LOGGED = 1000;
  private static final Set LOGGED = ConcurrentHashMap.newKeySet();

  /** The error of a task that reads a file. */
  static RuntimeException reading(String location, Throwable error) {
    return told("FAILED_READ_FILE.NO_HINT", location, error);
  }

  /** The error of a task that writes. @param where the file, or what is known of it */
  static RuntimeException writing(String where, Throwable error) {
    return told("TASK_WRITE_FAILED", where, error);
  }

  private static RuntimeException told(String condition, String where, Throwable error) {
    if (error instanceof Error) {
      throw (Error) error;
    }
    if (error instanceof TaskKilledException || error instanceof SparkRuntimeException) {
      return (RuntimeException) error;
    }
    TaskContext task = TaskContext.get();
    if (task != null) {
      // Where another task has failed, Spark interrupts this one, and its file closes beneath it: that is no failure of its own.
      task.killTaskIfInterrupted();
    }
    String reason = reason(where, error);
    logOnce(reason, error);
    HashMap parameters = new HashMap();
    parameters.put("path", reason.contains(where) ? reason : where + ": " + reason);
    scala.collection.immutable.Map asScala = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(parameters));
    SparkRuntimeException told = new SparkRuntimeException(condition, asScala, null, new QueryContext[0], "");
    told.setStackTrace(new StackTraceElement[0]);
    return told;
  }

  /** The cause in one line: what Python raised where that is known; else that a file does not authenticate; else what is behind all. */
  private static String reason(String where, Throwable error) {
    String ofPython = null;
    String ofParquet = null;
    Throwable last = error;
    for (Throwable each = error; each != null; each = each.getCause()) {
      last = each;
      String message = firstLine(each);
      if (each instanceof PlannerError || OF_PYTHON.matcher(message).matches()) {
        ofPython = message;
      }
      if (each instanceof ParquetCryptoRuntimeException || each instanceof AEADBadTagException) {
        ofParquet = ofParquet == null ? message : ofParquet;
      }
    }
    if (ofPython != null) {
      return ofPython;
    }
    if (ofParquet != null) {
      return "TamperedFileError: " + (ofParquet.contains(where) ? ofParquet : where + ": does not authenticate (" + ofParquet + ")");
    }
    return last.getClass().getSimpleName() + ": " + firstLine(last);
  }

  private static String firstLine(Throwable error) {
    String message = error.getMessage();
    return message == null ? "" : message.split("\n", 2)[0].trim();
  }

  /** With its stack, unless one that failed in the same place has been logged in this process. */
  private static void logOnce(String reason, Throwable error) {
    Throwable root = error;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    if (LOGGED.size() < MOST_LOGGED && LOGGED.add(Integer.valueOf(Arrays.hashCode(root.getStackTrace())))) {
      LOG.error("a task fails: " + reason, error);
    }
  }
}
