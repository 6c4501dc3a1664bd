package tablecrypt.jvm;

import java.io.FileNotFoundException;
import java.lang.ref.WeakReference;
import java.util.Map;
import org.apache.spark.rpc.RpcCallContext;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** Answers one question of an executor: "key READ PATH" or "deletes READ NUMBER". */
public class BrokerAnswer extends AbstractPartialFunction {
  private final Map reads;
  private final RpcCallContext call;

  BrokerAnswer(Map reads, RpcCallContext call) {
    this.reads = reads;
    this.call = call;
  }

  public boolean isDefinedAt(Object question) {
    return question instanceof String;
  }

  public Object applyOrElse(Object question, Function1 otherwise) {
    return apply(question);
  }

  public Object apply(Object question) {
    String[] words = ((String) question).split(" ", 3);
    WeakReference held = (WeakReference) reads.get(words[1]);
    PlannedFiles files = held == null ? null : (PlannedFiles) held.get();
    byte[] answer = files == null ? null : answer(files, words[0], words[2]);
    if (answer == null) {
      call.sendFailure(new FileNotFoundException("the driver planned no file " + words[2] + " in read " + words[1]));
    } else {
      call.reply(answer);
    }
    return BoxedUnit.UNIT;
  }

  private static byte[] answer(PlannedFiles files, String kind, String file) {
    return kind.equals("key") ? files.key(file) : files.deletedPositions(Integer.parseInt(file));
  }
}
