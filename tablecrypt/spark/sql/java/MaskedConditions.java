package tablecrypt.jvm;

import java.util.Iterator;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Refuses queries with a condition on a column of which their user sees masks. Spark tells a table of the conditions that it translates, and
 * evaluates the others unseen: casts, joins, functions of Python, all of a stream's. This looks at every optimized plan, and changes none.
 */
class MaskedConditions extends Rule {
  public TreeNode apply(TreeNode plan) {
    Iterator compared = new ColumnOrigins().compared((LogicalPlan) plan).iterator();
    while (compared.hasNext()) {
      ((ProtectedColumn) compared.next()).check();
    }
    return plan;
  }

  /** Put it behind the optimizer of a session that runs, and of copies of this session. Once is enough, more does nothing. */
  static synchronized void install(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    Seq rules = methods.extraOptimizations();
    for (int index = 0; index < rules.size(); index++) {
      if (rules.apply(index) instanceof MaskedConditions) {
        return;
      }
    }
    methods.extraOptimizations_$eq((Seq) rules.appended(new MaskedConditions()));
  }

  /** What a new session's optimizer is built with. */
  static class Injected extends AbstractFunction1 {
    public Object apply(Object session) {
      return new MaskedConditions();
    }
  }
}
