package tablecrypt.jvm;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What the jar brings to every session: Spark finds it by its service file. */
public class SqlExtensions extends AbstractFunction1 implements SparkSessionExtensionsProvider {
  public Object apply(Object extensions) {
    ((SparkSessionExtensions) extensions).injectParser(new TableStatements.Injected());
    return BoxedUnit.UNIT;
  }
}
