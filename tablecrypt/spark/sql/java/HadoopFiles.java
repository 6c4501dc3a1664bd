package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Which files of a plan Hadoop reads with its own configuration and credentials. Of each store one file is looked up; PyIceberg reads the
 * files of a store in which it is not found.
 */
class HadoopFiles {
  private static final String NOT_FOUND = "Hadoop, with its own configuration and credentials, does not find it";
  /** Stores in which a file was found. They are looked at once per process. */
  private static final Set FOUND = ConcurrentHashMap.newKeySet();

  /** For each file why Python reads it; null where Spark's own reader does. */
  static String[] portable(JsonNode plan, Configuration conf) {
    String[] reasons = new String[plan.required("lengths").size()];
    HashMap found = new HashMap();
    for (int number = 0; number < reasons.length; number++) {
      JsonNode told = plan.required("portable").required(number);
      reasons[number] = told.isNull() ? null : told.asText();
      if (reasons[number] == null && !isFound(plan, number, conf, found)) {
        reasons[number] = NOT_FOUND;
      }
    }
    return reasons;
  }

  private static boolean isFound(JsonNode plan, int number, Configuration conf, Map found) {
    Path path = new Path(plan.required("paths").required(number).asText());
    URI uri = path.toUri();
    String store = uri.getScheme() + "://" + uri.getAuthority();
    if (!found.containsKey(store)) {
      boolean known = FOUND.contains(store) || isAt(path, plan.required("lengths").required(number).asLong(), conf);
      if (known) {
        FOUND.add(store);
      }
      found.put(store, Boolean.valueOf(known));
    }
    return ((Boolean) found.get(store)).booleanValue();
  }

  private static boolean isAt(Path path, long length, Configuration conf) {
    try {
      return path.getFileSystem(conf).getFileStatus(path).getLen() == length;
    } catch (Throwable error) {
      // No such file system, a class of it that is missing, no right, no such file: which of these, Python will find out by itself.
      return false;
    }
  }
}
