package tablecrypt.jvm;

import java.io.IOException;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.rpc.RpcCallContext;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** One question of a writing task: "place TASK ATTEMPT NAME PARTITION", which Python answers, or "done ATTEMPT", which is always fine. */
public class WriteQuestion extends AbstractPartialFunction {
  private final LinkedBlockingQueue waiting;
  private final RpcCallContext call;
  private String text;

  WriteQuestion(LinkedBlockingQueue waiting, RpcCallContext call) {
    this.waiting = waiting;
    this.call = call;
  }

  public boolean isDefinedAt(Object question) {
    return question instanceof String;
  }

  public Object applyOrElse(Object question, Function1 otherwise) {
    return apply(question);
  }

  public Object apply(Object question) {
    text = (String) question;
    if (text.startsWith("done ")) {
      call.reply(new byte[0]);
    } else {
      waiting.add(this);
    }
    return BoxedUnit.UNIT;
  }

  public String text() {
    return text;
  }

  public void answer(byte[] answer) {
    call.reply(answer);
  }

  public void refuse(String reason) {
    call.sendFailure(new IOException(reason));
  }
}
