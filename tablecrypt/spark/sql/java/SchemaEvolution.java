package tablecrypt.jvm;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.TableCapability;

/**
 * The clause WITH SCHEMA EVOLUTION. Since Spark 4.1, Spark itself alters a table that has a capability for it, before the statement writes
 * rows. A table without the capability loses the columns that it lacks, without a word; so on Spark 4.0 the clause is refused.
 */
class SchemaEvolution {
  /** Null on Spark 4.0. */
  static final TableCapability CAPABILITY = known("AUTOMATIC_SCHEMA_EVOLUTION");

  /** Refuse a parsed statement that Spark would do without the clause. */
  static void check(SparkSession session, Object plan) {
    if (CAPABILITY == null && plan instanceof LogicalPlan) {
      refuseIn(session, (LogicalPlan) plan);
    }
  }

  private static void refuseIn(SparkSession session, LogicalPlan plan) {
    boolean hasClause = plan instanceof MergeIntoTable && ((MergeIntoTable) plan).withSchemaEvolution();
    if (hasClause && isOurs(session, ((MergeIntoTable) plan).targetTable())) {
      throw new UnsupportedOperationException("WITH SCHEMA EVOLUTION needs Spark 4.1: add the columns with ALTER TABLE, and leave it out");
    }
    for (int index = 0; index < plan.children().size(); index++) {
      refuseIn(session, (LogicalPlan) plan.children().apply(index));
    }
  }

  private static boolean isOurs(SparkSession session, LogicalPlan target) {
    LogicalPlan table = target instanceof SubqueryAlias ? ((SubqueryAlias) target).child() : target;
    return table instanceof UnresolvedRelation && SqlName.of(session, ((UnresolvedRelation) table).multipartIdentifier()) != null;
  }

  private static TableCapability known(String name) {
    TableCapability[] all = TableCapability.values();
    for (int index = 0; index < all.length; index++) {
      if (all[index].name().equals(name)) {
        return all[index];
      }
    }
    return null;
  }
}
