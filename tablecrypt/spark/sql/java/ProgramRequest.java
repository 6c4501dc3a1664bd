package tablecrypt.jvm;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/** One request to a program, which responds through Py4J. */
public class ProgramRequest {
  private final ProgramRequests requests;
  private final String planner;
  private final String id = UUID.randomUUID().toString();
  private final byte[] json;
  private final byte[] bytes;
  private final CompletableFuture response;

  /**
   * @param planner who asks
   * @param json null to say that who asked asks no more
   */
  ProgramRequest(ProgramRequests requests, String planner, byte[] json, byte[] bytes, CompletableFuture response) {
    this.requests = requests;
    this.planner = planner;
    this.json = json;
    this.bytes = bytes;
    this.response = response;
  }

  public String planner() {
    return planner;
  }

  public String id() {
    return id;
  }

  public byte[] json() {
    return json;
  }

  public byte[] bytes() {
    return bytes;
  }

  /** Take a response, or an error: the length of the planner's JSON (4), the JSON, and bytes, encrypted. */
  public void respond(byte[] encrypted) throws IOException {
    try {
      byte[] content = requests.decrypt(id, encrypted);
      int start = 4 + ByteBuffer.wrap(content).getInt();
      Planner.complete(response, Planner.JSON.readTree(content, 4, start - 4), Arrays.copyOfRange(content, start, content.length));
    } catch (IOException error) {
      response.completeExceptionally(error);
    }
  }

  void end() {
    response.completeExceptionally(new IOException("the SparkContext has stopped"));
  }
}
