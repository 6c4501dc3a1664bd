package tablecrypt.jvm;

import java.io.IOException;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.rpc.RpcCallContext;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** One request of a writing task: for a location, to which Python responds, or to finish, which is granted for as long as the write runs. */
public class PendingRequest extends AbstractPartialFunction {
  private final LinkedBlockingQueue waiting;
  private final RpcCallContext call;
  private String text;

  PendingRequest(LinkedBlockingQueue waiting, RpcCallContext call) {
    this.waiting = waiting;
    this.call = call;
  }

  public boolean isDefinedAt(Object request) {
    return request instanceof String;
  }

  public Object applyOrElse(Object request, Function1 otherwise) {
    return apply(request);
  }

  public Object apply(Object request) {
    text = (String) request;
    try {
      if (Requests.isOf(Requests.parse(text), Requests.FINISH)) {
        respond(new byte[0]);
      } else {
        waiting.add(this);
      }
    } catch (IOException error) {
      refuse(error.getMessage());
    }
    return BoxedUnit.UNIT;
  }

  public String text() {
    return text;
  }

  public void respond(byte[] response) {
    call.reply(response);
  }

  public void refuse(String reason) {
    call.sendFailure(new IOException(reason));
  }
}
