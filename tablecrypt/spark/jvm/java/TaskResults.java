package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.TreeMap;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Takes the result of each task, of the one attempt that Spark lets win. */
public class TaskResults extends AbstractFunction2 {
  private final TreeMap results = new TreeMap();

  public synchronized Object apply(Object task, Object result) {
    results.put(task, result);
    return BoxedUnit.UNIT;
  }

  synchronized byte[] toBytes() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    Object[] all = results.values().toArray();
    for (int index = 0; index < all.length; index++) {
      byte[] result = (byte[]) all[index];
      out.writeInt(result.length);
      out.write(result);
    }
    return content.toByteArray();
  }
}
