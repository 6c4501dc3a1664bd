package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A condition that is an argument of a procedure, as Spark understands it: where => 'id > 3 AND prod.system.bucket(4, id) = 2'. */
class CallCondition {
  /**
   * The condition's predicates, as scans push them; none where it always holds.
   *
   * @param columns of the table
   * @throws IllegalArgumentException no data source knows such a condition
   */
  static ArrayNode of(SparkSession session, StructType columns, String condition) {
    Dataset rows = session.createDataFrame(new JavaSparkContext(session.sparkContext()).emptyRDD(), columns).where(condition);
    LogicalPlan plan = rows.queryExecution().optimizedPlan();
    ArrayNode predicates = Planner.JSON.createArrayNode();
    if (plan instanceof LogicalRDD) {
      return predicates;
    }
    if (plan instanceof LocalRelation) {
      predicates.addObject().put("op", "ALWAYS_FALSE").putArray("args");
      return predicates;
    }
    Option predicate = plan instanceof Filter ? DataSourceV2Strategy$.MODULE$.translateFilterV2(((Filter) plan).condition()) : Option.empty();
    if (predicate.isEmpty()) {
      throw new IllegalArgumentException("where => '" + condition + "' does not compare columns, or partition functions of them, with values");
    }
    return SqlFilter.json(new Expression[] {(Expression) predicate.get()});
  }
}
