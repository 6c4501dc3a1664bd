package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** The Python that plans and commits: a process beside the driver, or the program that runs a statement. */
abstract class Planner {
  static final ObjectMapper JSON = new ObjectMapper();

  static ObjectNode request(String operation) {
    return JSON.createObjectNode().put("operation", operation);
  }

  PlannerResponse ask(ObjectNode request) {
    return ask(request, new byte[0]);
  }

  /** Send a request and wait for its response. PlannerError where Python raised an error. */
  PlannerResponse ask(ObjectNode request, byte[] bytes) {
    CompletableFuture response = new CompletableFuture();
    try {
      send(JSON.writeValueAsBytes(request), bytes, response);
      return (PlannerResponse) response.get();
    } catch (Throwable error) {
      throw unchecked(error);
    }
  }

  /** Hand a request on; what becomes of it completes the response. */
  abstract void send(byte[] json, byte[] bytes, CompletableFuture response) throws IOException;

  /** Complete a response with what Python said, or with the error that it raised. */
  static void complete(CompletableFuture response, JsonNode json, byte[] bytes) {
    if (json.has("error")) {
      JsonNode error = json.required("error");
      response.completeExceptionally(new PlannerError(error.required("kinds"), error.required("message").asText(), null));
      return;
    }
    response.complete(new PlannerResponse(json, bytes));
  }

  private static RuntimeException unchecked(Throwable error) {
    if (error instanceof InterruptedException) {
      Thread.currentThread().interrupt();
    }
    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
    if (cause instanceof PlannerError) {
      return ((PlannerError) cause).here();
    }
    return new IllegalStateException("the catalog's Python process does not respond: " + cause.getMessage(), cause);
  }
}
