package tablecrypt.jvm;

import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Seq$;
import scala.runtime.AbstractFunction1;

/**
 * Tells each write where its rows come from. It plans nothing: Spark hands optimized plans to it, with the writes that run, before its own
 * strategies. No extension sees them earlier.
 */
class PlannedWrites extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    SqlWrite write = writeOf(plan);
    if (write != null) {
      write.comesFrom(RowSources.of((LogicalPlan) plan.children().apply(0)));
    }
    return (Seq) Seq$.MODULE$.empty();
  }

  private static SqlWrite writeOf(LogicalPlan plan) {
    if (plan instanceof WriteToDataSourceV2) {
      Object batch = ((WriteToDataSourceV2) plan).batchWrite();
      Object stream = batch instanceof MicroBatchWrite ? ((MicroBatchWrite) batch).writeSupport() : null;
      return stream instanceof SqlStreamingWrite ? ((SqlStreamingWrite) stream).write : null;
    }
    Option write = Option.empty();
    if (plan instanceof AppendData) {
      write = ((AppendData) plan).write();
    } else if (plan instanceof OverwriteByExpression) {
      write = ((OverwriteByExpression) plan).write();
    } else if (plan instanceof OverwritePartitionsDynamic) {
      write = ((OverwritePartitionsDynamic) plan).write();
    }
    return write.isDefined() && write.get() instanceof SqlWrite ? (SqlWrite) write.get() : null;
  }

  /** Put it before the strategies of a session that runs, and of copies of this session. */
  static void install(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    methods.extraStrategies_$eq((Seq) methods.extraStrategies().appended(new PlannedWrites()));
  }

  /** What a new session's planner is built with. */
  static class Injected extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PlannedWrites();
    }
  }
}
