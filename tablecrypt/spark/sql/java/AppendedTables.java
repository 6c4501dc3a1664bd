package tablecrypt.jvm;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation$;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Product;
import scala.runtime.AbstractPartialFunction;

/**
 * Tells INSERT and MERGE of SQL from a DataFrame's append. For a table that accepts any schema Spark does not match columns: INSERT, which goes
 * by their order, would find none of its names, and MERGE is refused. So such a statement asks for one privilege more than an append, which
 * makes it load the table as any other (SqlCatalog.loadTable).
 */
class AppendedTables extends AbstractPartialFunction {
  private static final String PRIVILEGES = "INSERT,UPDATE";

  private final SparkSession session;

  AppendedTables(SparkSession session) {
    this.session = session;
  }

  /** The plan to use instead of a parsed one. */
  static Object distinguished(SparkSession session, Object plan) {
    return plan instanceof LogicalPlan ? ((LogicalPlan) plan).transformDown(new AppendedTables(session)) : plan;
  }

  public boolean isDefinedAt(Object node) {
    return target(node) != null;
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    UnresolvedRelation target = target(node);
    if (target == null) {
      return otherwise.apply(node);
    }
    Object table = table(node);
    if (table != target) {
      return replaced(node, table, replaced(table, target, written(target)));
    }
    return replaced(node, target, written(target));
  }

  /** The node with another one in the place of one that it has. */
  private static LogicalPlan replaced(Object node, Object old, Object wanted) {
    Product product = (Product) node;
    Object[] fields = new Object[product.productArity()];
    for (int index = 0; index < fields.length; index++) {
      fields[index] = product.productElement(index) == old ? wanted : product.productElement(index);
    }
    return (LogicalPlan) ((LogicalPlan) node).makeCopy(fields);
  }

  /** What a statement writes to, maybe under another name; null if it is no such statement. */
  private static Object table(Object node) {
    if (node instanceof InsertIntoStatement) {
      return ((InsertIntoStatement) node).table();
    }
    return node instanceof MergeIntoTable ? ((MergeIntoTable) node).targetTable() : null;
  }

  /** The table of ours that a statement writes to; null if it is no such statement. */
  private UnresolvedRelation target(Object node) {
    Object table = table(node);
    if (table instanceof SubqueryAlias) {
      table = ((SubqueryAlias) table).child();
    }
    if (!(table instanceof UnresolvedRelation)) {
      return null;
    }
    UnresolvedRelation relation = (UnresolvedRelation) table;
    boolean isAppend = "INSERT".equals(relation.options().get(UnresolvedRelation$.MODULE$.REQUIRED_WRITE_PRIVILEGES()));
    return isAppend && SqlName.of(session, relation.multipartIdentifier()) != null ? relation : null;
  }

  private static UnresolvedRelation written(UnresolvedRelation table) {
    Map options = new HashMap(table.options().asCaseSensitiveMap());
    options.put(UnresolvedRelation$.MODULE$.REQUIRED_WRITE_PRIVILEGES(), PRIVILEGES);
    return new UnresolvedRelation(table.multipartIdentifier(), new CaseInsensitiveStringMap(options), table.isStreaming());
  }
}
