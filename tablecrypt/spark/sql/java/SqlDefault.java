package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Method;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
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
