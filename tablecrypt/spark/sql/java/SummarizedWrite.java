package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * The run of a MERGE, for whose commit Spark counts the target's rows since 4.1: Spark 4.0 has no such method and no such types, so that
 * one jar can take them by reflection alone.
 */
class SummarizedWrite implements InvocationHandler {
  private static final String SUMMARY = "org.apache.spark.sql.connector.write.MergeSummary";
  private final SqlBatchWrite write;

  private SummarizedWrite(SqlBatchWrite write) {
    this.write = write;
  }

  static DeltaBatchWrite of(SqlBatchWrite write) {
    Class[] shown = new Class[] {DeltaBatchWrite.class};
    return (DeltaBatchWrite) Proxy.newProxyInstance(SummarizedWrite.class.getClassLoader(), shown, new SummarizedWrite(write));
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    if (method.getName().equals("commit") && arguments.length == 2) {
      write.commitCounted((WriterCommitMessage[]) arguments[0], counts(arguments[1]));
      return null;
    }
    try {
      return method.invoke(write, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  /** The counts by the names of their methods; none where Spark could not count, or the summary is of something else. */
  private static ObjectNode counts(Object summary) throws Exception {
    ObjectNode counts = Planner.JSON.createObjectNode();
    if (summary == null) {
      return counts;
    }
    Class kind = Class.forName(SUMMARY, false, summary.getClass().getClassLoader());
    if (!kind.isInstance(summary)) {
      return counts;
    }
    Method[] methods = kind.getMethods();
    for (int index = 0; index < methods.length; index++) {
      Method method = methods[index];
      if (method.getReturnType() == Long.TYPE && method.getParameterTypes().length == 0) {
        counts.put(method.getName(), ((Long) method.invoke(summary, new Object[0])).longValue());
      }
    }
    return counts;
  }
}
