package tablecrypt.jvm;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What the jar brings to every session: Spark finds it by its service file. */
public class SqlExtensions extends AbstractFunction1 implements SparkSessionExtensionsProvider {
  public Object apply(Object extensions) {
    inject((SparkSessionExtensions) extensions);
    return BoxedUnit.UNIT;
  }

  /** Bring the same to a session that runs without the jar, and to new ones that are made from it. Once is enough, more does nothing. */
  static synchronized void install(SparkSession session) throws Exception {
    if (TableStatements.install(session)) {
      MaskedConditions.install(session);
      PlannedWrites.install(session);
      inject(session.extensions());
    }
  }

  private static void inject(SparkSessionExtensions extensions) {
    extensions.injectParser(new TableStatements.Injected());
    extensions.injectPreCBORule(new MaskedConditions.Injected());
    extensions.injectPlannerStrategy(new PlannedWrites.Injected());
  }
}
