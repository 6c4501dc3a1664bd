package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** One table at one snapshot, as Python told of it when it was loaded. */
public class SqlTable implements Table {
  final SqlCatalog catalog;
  final Planner planner;
  final JsonNode told;
  final String handle;
  /** Spark's schema of the columns with their field ids. */
  final StructType stored;
  private final StructType schema;

  SqlTable(SqlCatalog catalog, Planner planner, JsonNode told) {
    this.catalog = catalog;
    this.planner = planner;
    this.told = told;
    this.handle = told.required("table").asText();
    this.stored = (StructType) DataType.fromJson(told.required("stored").asText());
    this.schema = (StructType) DataType.fromJson(told.required("schema").asText());
  }

  /** A request about this table, as it was loaded. */
  ObjectNode request(String operation) {
    return Planner.request(operation).put("table", handle);
  }

  public String name() {
    return told.required("name").asText();
  }

  public String id() {
    return told.required("uuid").asText();
  }

  public String version() {
    return told.required("snapshot").asText();
  }

  public StructType schema() {
    return schema;
  }

  public Transform[] partitioning() {
    return transforms(told.required("partitioning"));
  }

  static Transform[] transforms(JsonNode told) {
    Transform[] transforms = new Transform[told.size()];
    for (int index = 0; index < transforms.length; index++) {
      transforms[index] = transform(told.required(index));
    }
    return transforms;
  }

  private static Transform transform(JsonNode told) {
    String name = told.required("name").asText();
    Expression column = Expressions.column(told.required("column").asText());
    if (name.equals("bucket")) {
      return Expressions.bucket(told.required("parameter").asInt(), new String[] {told.required("column").asText()});
    }
    if (name.equals("truncate")) {
      Expression width = Expressions.literal(Integer.valueOf(told.required("parameter").asInt()));
      return Expressions.apply(name, new Expression[] {width, column});
    }
    return Expressions.apply(name, new Expression[] {column});
  }

  public Map properties() {
    return (Map) Planner.JSON.convertValue(told.required("properties"), HashMap.class);
  }

  public Set capabilities() {
    return new HashSet();
  }
}
