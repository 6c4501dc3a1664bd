package org.apache.iceberg.spark.extensions;

import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** The name that Iceberg's tests configure, and our extensions behind it. */
public class IcebergSparkSessionExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  @SuppressWarnings({"rawtypes", "unchecked"})
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    ((scala.Function1) new tablecrypt.jvm.SqlExtensions()).apply(extensions);
    return BoxedUnit.UNIT;
  }
}
