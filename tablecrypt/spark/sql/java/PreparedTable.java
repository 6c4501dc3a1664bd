package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;

/** The table of a program. Rows that are written have its columns and types already: Spark must not bring them there once more. */
class PreparedTable extends SqlTable {
  PreparedTable(Planner planner, JsonNode told) {
    super(null, planner, told);
  }

  /** A program writes it as its arguments say, and no setting of the session is read for that. */
  ObjectNode request(String operation) {
    return Planner.request(operation).put("table", handle);
  }

  public Set capabilities() {
    Set known = super.capabilities();
    known.add(TableCapability.ACCEPT_ANY_SCHEMA);
    return known;
  }

  PythonCommand python() {
    ArrayList path = (ArrayList) Planner.JSON.convertValue(told.required("path"), ArrayList.class);
    return new PythonCommand(told.required("python").asText(), path);
  }
}
