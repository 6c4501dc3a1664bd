package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What CREATE TABLE says of a table, as JSON. */
class SqlDefinition {
  static ObjectNode put(ObjectNode request, StructType schema, Transform[] partitions, Map properties) {
    request.put("schema", schema.json());
    request.set("properties", Planner.JSON.valueToTree(properties));
    ArrayNode transforms = request.putArray("partitions");
    for (int index = 0; index < partitions.length; index++) {
      put(transforms.addObject(), partitions[index]);
    }
    return request;
  }

  /** The defaults of columns, by name. */
  static ObjectNode putDefaults(ObjectNode request, Column[] columns) {
    ObjectNode defaults = request.putObject("defaults");
    for (int index = 0; index < columns.length; index++) {
      JsonNode value = SqlDefault.json(columns[index].defaultValue());
      if (!value.isNull()) {
        defaults.set(columns[index].name(), value);
      }
    }
    return request;
  }

  static StructType schema(Column[] columns) {
    StructField[] fields = new StructField[columns.length];
    for (int index = 0; index < fields.length; index++) {
      Column column = columns[index];
      fields[index] = new StructType().add(column.name(), column.dataType(), column.nullable()).fields()[0];
      if (column.comment() != null) {
        fields[index] = fields[index].withComment(column.comment());
      }
    }
    return new StructType(fields);
  }

  private static void put(ObjectNode node, Transform transform) {
    ArrayNode parameters = node.put("transform", transform.name()).putArray("parameters");
    ArrayNode columns = node.putArray("columns");
    Expression[] arguments = transform.arguments();
    for (int index = 0; index < arguments.length; index++) {
      if (arguments[index] instanceof NamedReference) {
        columns.add(Planner.JSON.valueToTree(((NamedReference) arguments[index]).fieldNames()));
      } else {
        Object value = ((Literal) arguments[index]).value();
        if (value instanceof Number) {
          parameters.add(((Number) value).longValue());
        } else {
          parameters.add(String.valueOf(value));
        }
      }
    }
  }
}
