package tablecrypt.jvm;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;

/** What executors ask the driver for, as JSON. The requests and their fields are documented in tablecrypt/spark/shared/coordinator.py. */
public class Requests {
  public static final String KIND = "request";
  public static final String KEY = "key";
  public static final String DELETES = "deletes";
  public static final String PORTABLE = "portable";
  public static final String LOCATION = "location";
  public static final String WRITING = "writing";
  public static final String FINISH = "finish";
  public static final String READ = "read";
  public static final String PATH = "path";
  public static final String FILE = "file";
  public static final String TASK = "task";
  public static final String ATTEMPT = "attempt";
  public static final String UNIQUE = "unique";
  public static final String NUMBER = "number";
  public static final String PARTITION = "partition";

  private static final ObjectMapper JSON = new ObjectMapper();

  static {
    JSON.enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    JSON.enable(new JsonParser.Feature[] {JsonParser.Feature.STRICT_DUPLICATE_DETECTION});
  }

  public static String key(String read, String path) {
    return request(KEY).put(READ, read).put(PATH, path).toString();
  }

  public static String deletes(String read, int file) {
    return request(DELETES).put(READ, read).put(FILE, file).toString();
  }

  public static String portable(String read, int file) {
    return request(PORTABLE).put(READ, read).put(FILE, file).toString();
  }

  public static String location(int task, long attempt, String unique, int number, byte[] partition) {
    return ofAttempt(LOCATION, task, attempt).put(UNIQUE, unique).put(NUMBER, number).put(PARTITION, partition).toString();
  }

  public static String writing(int task, long attempt) {
    return ofAttempt(WRITING, task, attempt).toString();
  }

  public static String finish(int task, long attempt) {
    return ofAttempt(FINISH, task, attempt).toString();
  }

  /** The fields of a request that is one of these. */
  public static Map parse(String text) throws IOException {
    Map request = parsed(text);
    if (request == null || !isComplete(request)) {
      throw new IOException("malformed request");
    }
    return request;
  }

  static boolean isOf(Map request, String kind) {
    return kind.equals(request.get(KIND));
  }

  /** Without Jackson's error, which would show what was sent. */
  private static Map parsed(String text) {
    try {
      return (Map) JSON.readValue(text, Map.class);
    } catch (IOException error) {
      return null;
    }
  }

  private static boolean isComplete(Map request) {
    if (isOf(request, KEY)) {
      return request.size() == 3 && request.get(READ) instanceof String && request.get(PATH) instanceof String;
    }
    if (isOf(request, DELETES) || isOf(request, PORTABLE)) {
      return request.size() == 3 && request.get(READ) instanceof String && request.get(FILE) instanceof Integer;
    }
    Object attempt = request.get(ATTEMPT);
    boolean isOfAttempt = request.get(TASK) instanceof Integer && (attempt instanceof Integer || attempt instanceof Long);
    if (isOf(request, WRITING) || isOf(request, FINISH)) {
      return request.size() == 3 && isOfAttempt;
    }
    return isOf(request, LOCATION)
        && request.size() == 6
        && isOfAttempt
        && request.get(UNIQUE) instanceof String
        && request.get(NUMBER) instanceof Integer
        && request.get(PARTITION) instanceof String;
  }

  private static ObjectNode ofAttempt(String kind, int task, long attempt) {
    return request(kind).put(TASK, task).put(ATTEMPT, attempt);
  }

  private static ObjectNode request(String kind) {
    return JSON.createObjectNode().put(KIND, kind);
  }
}
