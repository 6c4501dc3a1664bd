package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Method;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns$;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** DEFAULT of a column as JSON: a value, which an Iceberg table keeps, and not what an expression gives at some time. */
class SqlDefault {
  /** Return the value, as SqlFilter writes it; null for none. */
  static JsonNode json(ColumnDefaultValue given) {
    if (given == null || given.getValue() == null || given.getValue().value() == null) {
      return Planner.JSON.nullNode();
    }
    checkConstant(sql(given));
    return SqlFilter.json((org.apache.spark.sql.connector.expressions.Expression) given.getValue());
  }

  /**
   * Return the value that SQL gives for a column; null for DROP DEFAULT, which has no SQL.
   *
   * @param column the path of names to the column
   */
  static JsonNode json(String sql, String[] column, StructType schema) {
    if (sql == null || sql.isEmpty()) {
      return Planner.JSON.nullNode();
    }
    checkConstant(sql);
    DataType type = typeOf(column, schema);
    Expression analyzed = ResolveDefaultColumns$.MODULE$.analyze(column[column.length - 1], type, sql, "ALTER TABLE ALTER COLUMN");
    Object value = analyzed.eval(null);
    return value == null ? Planner.JSON.nullNode() : SqlFilter.json(new LiteralValue(value, type));
  }

  private static DataType typeOf(String[] column, StructType schema) {
    DataType type = schema;
    for (int index = 0; index < column.length; index++) {
      if (!(type instanceof StructType)) {
        throw new UnsupportedOperationException("DEFAULT: " + column[index] + " is inside a list or map, and values there have no default");
      }
      type = ((StructType) type).apply(column[index]).dataType();
    }
    return type;
  }

  /** Since Spark 4.3 the method is that of a class which is not public: Janino does not find it there. */
  private static String sql(ColumnDefaultValue given) {
    try {
      Method method = ColumnDefaultValue.class.getMethod("getSql", new Class[0]);
      method.setAccessible(true);
      return (String) method.invoke(given, new Object[0]);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void checkConstant(String sql) {
    if (!isConstant(CatalystSqlParser$.MODULE$.parseExpression(sql))) {
      throw new UnsupportedOperationException("DEFAULT " + sql + ": a column's default is one value: write a literal");
    }
  }

  private static boolean isConstant(Expression expression) {
    if (expression instanceof Literal) {
      return true;
    }
    if (!(expression instanceof Cast || expression instanceof UnaryMinus)) {
      return false;
    }
    Iterator children = CollectionConverters.asJava(expression.children()).iterator();
    return isConstant((Expression) children.next());
  }
}
