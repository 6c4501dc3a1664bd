package tablecrypt.jvm;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * What relations and writes of one Python program ask it, until the SparkContext stops. The program takes the requests through Py4J.
 *
 * Its responses hold keys of files. Py4J may write them to debug logs, so they come encrypted under a key of the program.
 */
public class ProgramRequests {
  private static final Object END = new Object();
  private static final Cleaner CLEANER = Cleaner.create();
  private static final int NONCE_LENGTH = 12;
  private static final int TAG_BITS = 128;

  private final LinkedBlockingQueue waiting = new LinkedBlockingQueue();
  private final SecretKeySpec key;
  private boolean isClosed = false;

  ProgramRequests(byte[] key) {
    this.key = new SecretKeySpec(key, "AES");
  }

  /** What one write or relation asks with. The program is told when nothing in this JVM holds it any more. */
  public ProgramPlanner newPlanner() {
    String name = UUID.randomUUID().toString();
    ProgramPlanner planner = new ProgramPlanner(this, name);
    CLEANER.register(planner, new Release(this, name));
    return planner;
  }

  synchronized void add(ProgramRequest request) throws IOException {
    if (isClosed) {
      throw new IOException("the SparkContext has stopped");
    }
    waiting.add(request);
  }

  /** Wait for the next request; null when the SparkContext has stopped. */
  public ProgramRequest next() throws InterruptedException {
    Object request = waiting.take();
    return request == END ? null : (ProgramRequest) request;
  }

  /** After this no request waits, and none is added. */
  synchronized void close() {
    if (isClosed) {
      return;
    }
    isClosed = true;
    ArrayList left = new ArrayList();
    waiting.drainTo(left);
    for (int index = 0; index < left.size(); index++) {
      ((ProgramRequest) left.get(index)).end();
    }
    waiting.add(END);
  }

  /** The content of a response to a request: nonce (12), ciphertext and tag (16), with the request's id as AAD. */
  byte[] decrypt(String id, byte[] encrypted) throws IOException {
    try {
      Cipher aes = Cipher.getInstance("AES/GCM/NoPadding");
      aes.init(Cipher.DECRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, encrypted, 0, NONCE_LENGTH));
      aes.updateAAD(id.getBytes("UTF-8"));
      return aes.doFinal(encrypted, NONCE_LENGTH, encrypted.length - NONCE_LENGTH);
    } catch (GeneralSecurityException error) {
      throw new IOException("a response of the program does not authenticate", error);
    }
  }

  private static class Release implements Runnable {
    private final ProgramRequests requests;
    private final String planner;

    Release(ProgramRequests requests, String planner) {
      this.requests = requests;
      this.planner = planner;
    }

    public void run() {
      try {
        requests.add(new ProgramRequest(requests, planner, null, new byte[0], new CompletableFuture()));
      } catch (IOException error) {
        // The SparkContext has stopped, and the program forgets all of its relations.
        return;
      }
    }
  }
}
