package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * An error that Python raised: its message, and the names of its class and of the classes above. PySpark shows an IllegalArgumentException by its
 * message, and other errors that are not its own with the whole stack of the JVM.
 */
public class PlannerError extends IllegalArgumentException {
  private final JsonNode kinds;

  PlannerError(JsonNode kinds, String message, Throwable cause) {
    super(message, cause);
    this.kinds = kinds;
  }

  /** Whether it is of a Python class of this name. */
  boolean is(String kind) {
    for (int index = 0; index < kinds.size(); index++) {
      if (kinds.required(index).asText().equals(kind)) {
        return true;
      }
    }
    return false;
  }

  /** The same error with the stack of the thread that asked. */
  PlannerError here() {
    return new PlannerError(kinds, getMessage(), this);
  }
}
