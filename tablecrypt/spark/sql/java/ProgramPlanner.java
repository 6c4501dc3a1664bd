package tablecrypt.jvm;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.AppendData$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * One write or relation of a Python program: the program plans it, and takes the requests through Py4J (ProgramRequests).
 *
 * A statement runs in the DataFrame's own session, whose settings and catalogs stay as they are: its table is in no catalog.
 */
public class ProgramPlanner extends Planner {
  private static final String APPEND = "byPosition";
  private static final String LAYOUT = "use-table-distribution-and-ordering";

  private final ProgramRequests requests;
  private final String name;
  private volatile boolean isClosed = false;

  ProgramPlanner(ProgramRequests requests, String name) {
    this.requests = requests;
    this.name = name;
  }

  /** By which requests say who asks. */
  public String name() {
    return name;
  }

  void send(byte[] json, byte[] bytes, CompletableFuture response) throws IOException {
    if (isClosed) {
      throw new IOException("the write has ended");
    }
    requests.add(new ProgramRequest(requests, name, json, bytes, response));
  }

  /** After this no request is sent. */
  public void close() {
    isClosed = true;
  }

  /**
   * Write a Dataset's rows.
   *
   * @param rows with the table's columns, in their order and of their types
   * @param table what Python knows of it, as of one that a catalog loads
   */
  public void append(Dataset rows, String table) throws IOException {
    Dataset.ofRows((SparkSession) rows.sparkSession(), appended(relation(table), rows.logicalPlan()));
  }

  /**
   * The rows of a table as a Dataset.
   *
   * @param table what Python knows of it, as of one that a catalog loads
   * @param condition which rows, in SQL; null for all
   * @param columns how many of its columns, from the first on; the condition may need others
   */
  public Dataset read(SparkSession session, String table, String condition, int columns) throws IOException {
    LogicalPlan rows = relation(table);
    Seq shown = (Seq) rows.output().take(columns);
    if (condition != null) {
      // Not by the session's own parser, which replaces what looks like a variable.
      rows = new Filter(CatalystSqlParser$.MODULE$.parseExpression(condition), rows);
    }
    return Dataset.ofRows(session, columns == rows.output().size() ? rows : new Project(shown, rows));
  }

  private DataSourceV2Relation relation(String table) throws IOException {
    PreparedTable prepared = new PreparedTable(this, JSON.readTree(table));
    return DataSourceV2Relation.create(prepared, Option.apply(new TransformCatalog()), Option.empty());
  }

  /** Newer releases of Spark give it one more argument, whether the table's schema may evolve. */
  private static LogicalPlan appended(DataSourceV2Relation table, LogicalPlan rows) {
    // How rows are laid out, the program says, and not the table.
    Object options = ((scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty()).updated(LAYOUT, "false");
    Method[] methods = AppendData$.MODULE$.getClass().getMethods();
    try {
      for (int index = 0; index < methods.length; index++) {
        if (methods[index].getName().equals(APPEND)) {
          boolean isShort = methods[index].getParameterTypes().length == 3;
          Object[] arguments = isShort ? new Object[] {table, rows, options} : new Object[] {table, rows, options, Boolean.FALSE};
          return (AppendData) methods[index].invoke(AppendData$.MODULE$, arguments);
        }
      }
    } catch (InvocationTargetException refused) {
      Platform.throwException(refused.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
    throw new IllegalStateException("this version of Spark appends rows in a way that tablecrypt does not know");
  }
}
