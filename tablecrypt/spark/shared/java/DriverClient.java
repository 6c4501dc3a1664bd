package tablecrypt.jvm;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.BitSet;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.util.RpcUtils;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;
import scala.reflect.ClassTag$;

/** Sends requests of executors to endpoints of the driver. Keys are kept in this process, so that each file's is asked for once. */
public class DriverClient {
  private static final int KEPT_KEYS = 20000;
  private static final Map KEYS = Collections.synchronizedMap(new RecentlyUsed());

  static byte[] key(String endpoint, String read, String path) {
    String request = Requests.key(read, path);
    byte[] known = (byte[]) KEYS.get(request);
    if (known == null) {
      known = request(endpoint, request);
      KEYS.put(request, known);
    }
    return known;
  }

  static BitSet deletedPositions(String endpoint, String read, int number) throws IOException {
    RoaringBitmap bitmap = new RoaringBitmap();
    bitmap.deserialize(new DataInputStream(new ByteArrayInputStream(request(endpoint, Requests.deletes(read, number)))));
    BitSet bits = new BitSet();
    PeekableIntIterator positions = bitmap.getIntIterator();
    while (positions.hasNext()) {
      bits.set(positions.next());
    }
    return bits;
  }

  static byte[] portable(String endpoint, String read, int number) {
    return request(endpoint, Requests.portable(read, number));
  }

  /** Send a request to an endpoint of the driver, and return its response. */
  static byte[] request(String endpoint, String request) {
    RpcEndpointRef driver = RpcUtils.makeDriverRef(endpoint, SparkProcess.conf(), SparkProcess.rpcEnv());
    return (byte[]) driver.askSync(request, ClassTag$.MODULE$.apply(byte[].class));
  }

  /** Forgets the key that was asked for longest ago. */
  private static class RecentlyUsed extends LinkedHashMap {
    RecentlyUsed() {
      super(16, 0.75f, true);
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT_KEYS;
    }
  }
}
