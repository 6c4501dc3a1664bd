package tablecrypt.jvm;

import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.Function1;
import scala.runtime.AbstractFunction0;

/** Opens one file with field ids on: Spark's row-by-row reader looks for that setting in the session alone. */
public class ReadByIds extends AbstractFunction0 {
  private final Function1 rows;
  private final Object file;

  ReadByIds(Function1 rows, Object file) {
    this.rows = rows;
    this.file = file;
  }

  Object open() {
    SQLConf conf = new SQLConf();
    conf.settings().putAll(SQLConf$.MODULE$.get().settings());
    conf.setConfString("spark.sql.parquet.fieldId.read.enabled", "true");
    return SQLConf$.MODULE$.withExistingConf(conf, this);
  }

  public Object apply() {
    return rows.apply(file);
  }
}
