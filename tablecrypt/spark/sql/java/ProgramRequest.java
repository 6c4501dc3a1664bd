package tablecrypt.jvm;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;

/** One request to a program, which responds through Py4J. */
public class ProgramRequest {
  private final byte[] json;
  private final byte[] bytes;
  private final CompletableFuture response;

  ProgramRequest(byte[] json, byte[] bytes, CompletableFuture response) {
    this.json = json;
    this.bytes = bytes;
    this.response = response;
  }

  public byte[] json() {
    return json;
  }

  public byte[] bytes() {
    return bytes;
  }

  /** Take a response, or an error, in the planner's JSON. */
  public void respond(byte[] json, byte[] bytes) throws IOException {
    Planner.complete(response, Planner.JSON.readTree(json), bytes);
  }

  void end() {
    response.completeExceptionally(new IOException("the write has ended"));
  }
}
