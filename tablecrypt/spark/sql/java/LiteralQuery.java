package tablecrypt.jvm;

import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.unsafe.Platform;
import scala.runtime.AbstractFunction0;

/**
 * A query that Spark parses as it stands. In a statement Spark replaces variables (${env:HOME}, ${spark.app.name}) before it parses. The writer
 * of a stored query would choose with them what of the reader's environment is a name, and names go to the catalog's server.
 */
class LiteralQuery extends AbstractFunction0 {
  static final String SETTING = "spark.sql.variable.substitute";

  private final SparkSession session;
  private final String sql;

  private LiteralQuery(SparkSession session, String sql) {
    this.session = session;
    this.sql = sql;
  }

  static LogicalPlan parsed(SparkSession session, String sql) {
    SQLConf settings = (SQLConf) SQLConf.get().clone();
    settings.setConfString(SETTING, "false");
    return (LogicalPlan) SQLConf.withExistingConf(settings, new LiteralQuery(session, sql));
  }

  public Object apply() {
    try {
      return session.sessionState().sqlParser().parseQuery(sql);
    } catch (ParseException error) {
      Platform.throwException(error);
      return null;
    }
  }
}
