package tablecrypt.jvm;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.Map;
import org.apache.spark.rpc.RpcCallContext;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** Responds to one request of an executor that reads: for the key of a file, for its deleted positions, or for all that Python reads it with. */
public class ReadResponse extends AbstractPartialFunction {
  private final Map reads;
  private final RpcCallContext call;

  ReadResponse(Map reads, RpcCallContext call) {
    this.reads = reads;
    this.call = call;
  }

  public boolean isDefinedAt(Object request) {
    return request instanceof String;
  }

  public Object applyOrElse(Object request, Function1 otherwise) {
    return apply(request);
  }

  public Object apply(Object request) {
    try {
      call.reply(response(Requests.parse((String) request)));
    } catch (IOException error) {
      call.sendFailure(error);
    }
    return BoxedUnit.UNIT;
  }

  private byte[] response(Map request) throws IOException {
    boolean isForKey = Requests.isOf(request, Requests.KEY);
    boolean isForDeletes = Requests.isOf(request, Requests.DELETES);
    if (!isForKey && !isForDeletes && !Requests.isOf(request, Requests.PORTABLE)) {
      throw new IOException("malformed request");
    }
    String read = (String) request.get(Requests.READ);
    Object file = request.get(isForKey ? Requests.PATH : Requests.FILE);
    WeakReference held = (WeakReference) reads.get(read);
    PlannedFiles files = held == null ? null : (PlannedFiles) held.get();
    byte[] response = files == null ? null : isForKey ? files.key((String) file) : ofNumber(files, ((Integer) file).intValue(), isForDeletes);
    if (response == null) {
      throw new FileNotFoundException("the driver planned no file " + file + " in read " + read);
    }
    return response;
  }

  private static byte[] ofNumber(PlannedFiles files, int number, boolean isForDeletes) {
    return isForDeletes ? files.deletedPositions(number) : files.task(number);
  }
}
