package tablecrypt.jvm;

import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What one task, or the driver, says of a metric of a scan or a write. */
class MetricValue implements CustomTaskMetric {
  private final String name;
  private final long value;

  MetricValue(String name, long value) {
    this.name = name;
    this.value = value;
  }

  public String name() {
    return name;
  }

  public long value() {
    return value;
  }
}
