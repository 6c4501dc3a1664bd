package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.TreeMap;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Takes the answer of each task, of the one attempt that Spark lets win. */
public class TaskAnswers extends AbstractFunction2 {
  private final TreeMap answers = new TreeMap();

  public synchronized Object apply(Object task, Object answer) {
    answers.put(task, answer);
    return BoxedUnit.UNIT;
  }

  synchronized byte[] toBytes() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    Object[] all = answers.values().toArray();
    for (int index = 0; index < all.length; index++) {
      byte[] answer = (byte[]) all[index];
      out.writeInt(answer.length);
      out.write(answer);
    }
    return content.toByteArray();
  }
}
