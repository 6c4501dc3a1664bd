package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.UserDefinedScalarFunc;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/** Spark's predicates and transforms as JSON for Python. The form is drawn in tablecrypt/spark/sql/scans/filters.py. */
class SqlFilter {
  private static final String UNKNOWN = "?";

  static ArrayNode json(Predicate[] predicates) {
    return json((Expression[]) predicates);
  }

  static ArrayNode json(Expression[] expressions) {
    ArrayNode all = Planner.JSON.createArrayNode();
    for (int index = 0; index < expressions.length; index++) {
      all.add(json(expressions[index]));
    }
    return all;
  }

  static JsonNode json(Expression expression) {
    ObjectNode node = Planner.JSON.createObjectNode();
    if (expression instanceof NamedReference) {
      node.set("column", Planner.JSON.valueToTree(((NamedReference) expression).fieldNames()));
      return node;
    }
    if (expression instanceof LiteralValue) {
      LiteralValue literal = (LiteralValue) expression;
      return value(node.put("type", literal.dataType().simpleString()), literal.value());
    }
    if (expression instanceof GeneralScalarExpression) {
      return call(node, ((GeneralScalarExpression) expression).name(), expression.children());
    }
    if (isPartitionFunction(expression)) {
      return call(node, ((UserDefinedScalarFunc) expression).name(), expression.children());
    }
    if (expression instanceof Transform) {
      return call(node, ((Transform) expression).name(), ((Transform) expression).arguments());
    }
    return call(node, UNKNOWN, expression.references());
  }

  static boolean isPartitionFunction(Expression expression) {
    return expression instanceof UserDefinedScalarFunc && SqlTransform.isOwn(((UserDefinedScalarFunc) expression).canonicalName());
  }

  private static JsonNode call(ObjectNode node, String name, Expression[] arguments) {
    node.put("op", name).set("args", json(arguments));
    return node;
  }

  private static JsonNode value(ObjectNode node, Object value) {
    if (value == null) {
      return node.putNull("value");
    }
    if (value instanceof Boolean) {
      return node.put("value", ((Boolean) value).booleanValue());
    }
    if (value instanceof Double || value instanceof Float) {
      return node.put("value", ((Number) value).doubleValue());
    }
    if (value instanceof Number) {
      return node.put("value", ((Number) value).longValue());
    }
    if (value instanceof byte[]) {
      return node.put("value", (byte[]) value);
    }
    return node.put("value", value.toString());
  }
}
