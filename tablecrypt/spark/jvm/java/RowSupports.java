package tablecrypt.jvm;

import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.runtime.AbstractFunction0;

/** Makes a RowSupport for the proleptic Gregorian calendar, Iceberg's own: Spark's writer looks for its calendar in the session alone. */
public class RowSupports extends AbstractFunction0 {
  private final WriteJob job;

  RowSupports(WriteJob job) {
    this.job = job;
  }

  RowSupport next() {
    SQLConf conf = new SQLConf();
    conf.settings().putAll(SQLConf$.MODULE$.get().settings());
    conf.setConfString("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED");
    return (RowSupport) SQLConf$.MODULE$.withExistingConf(conf, this);
  }

  public Object apply() {
    return new RowSupport(job);
  }
}
