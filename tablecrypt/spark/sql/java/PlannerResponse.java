package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;

/** What Python responded: an object, and bytes where an operation has some. */
class PlannerResponse {
  final JsonNode json;
  final byte[] bytes;

  PlannerResponse(JsonNode json, byte[] bytes) {
    this.json = json;
    this.bytes = bytes;
  }
}
