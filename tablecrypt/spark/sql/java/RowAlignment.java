package tablecrypt.jvm;

import java.io.Serializable;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.sql.catalyst.analysis.TableOutputResolver$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Brings rows to the columns of a table that accepts any schema: by name, with casts and defaults as Spark does it for other tables.
 *
 * For a table that accepts any schema Spark leaves that out, and an append writes the rows of its DataFrame as they are.
 */
class RowAlignment implements Serializable {
  private static final String RESOLVE = "resolveOutputColumns";
  private static final String FILL_MODE = "org.apache.spark.sql.catalyst.analysis.TableOutputResolver$DefaultValueFillMode$";

  /** The columns of rows that are brought to the table's. */
  final StructType schema;
  private final Seq expressions;
  private final Seq given;

  private RowAlignment(StructType schema, Seq expressions, Seq given) {
    this.schema = schema;
    this.expressions = expressions;
    this.given = given;
  }

  /** @param table the table's columns, with those that the write adds, as Python says (tablecrypt/spark/sql/writes/source_columns.py) */
  static RowAlignment of(String name, String table, StructType rows) {
    StructType schema = (StructType) DataType.fromJson(table);
    Seq given = DataTypeUtils$.MODULE$.toAttributes(rows);
    LogicalPlan source = new LocalRelation(given, Nil$.MODULE$, false, Option.empty());
    LogicalPlan aligned = resolved(name, DataTypeUtils$.MODULE$.toAttributes(schema), source);
    Seq expressions = aligned instanceof Project ? ((Project) aligned).projectList() : aligned.output();
    return new RowAlignment(schema, expressions, given);
  }

  UnsafeProjection projection() {
    return UnsafeProjection.create(expressions, given);
  }

  /** What Spark does for an append by name. Its last argument, by which missing columns get defaults, is of another type since Spark 4.2. */
  private static LogicalPlan resolved(String name, Seq table, LogicalPlan rows) {
    Object resolver = TableOutputResolver$.MODULE$;
    Method[] methods = resolver.getClass().getMethods();
    try {
      for (int index = 0; index < methods.length; index++) {
        Class[] kinds = methods[index].getParameterTypes();
        if (methods[index].getName().equals(RESOLVE) && kinds.length == 6) {
          Object filled = kinds[5] == Boolean.TYPE ? Boolean.TRUE : fillMode();
          return (LogicalPlan) methods[index].invoke(resolver, new Object[] {name, table, rows, Boolean.TRUE, SQLConf.get(), filled});
        }
      }
    } catch (InvocationTargetException refused) {
      Platform.throwException(refused.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
    throw new IllegalStateException("this version of Spark matches columns in a way that tablecrypt does not know");
  }

  private static Object fillMode() throws ReflectiveOperationException {
    Class mode = Class.forName(FILL_MODE, true, TableOutputResolver$.class.getClassLoader());
    Field module = mode.getField("MODULE$");
    return mode.getMethod("FILL", new Class[0]).invoke(module.get(null), new Object[0]);
  }
}
