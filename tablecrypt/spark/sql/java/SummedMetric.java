package tablecrypt.jvm;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** A number that Spark's UI shows of a scan or a write, summed up over its tasks. The UI makes one without a name, to sum up. */
public class SummedMetric extends CustomSumMetric {
  private final String name;
  private final String description;

  public SummedMetric() {
    this("", "");
  }

  SummedMetric(String name, String description) {
    this.name = name;
    this.description = description;
  }

  /** Return metrics by their names and descriptions. */
  static CustomMetric[] of(String[][] shown) {
    CustomMetric[] metrics = new CustomMetric[shown.length];
    for (int index = 0; index < shown.length; index++) {
      metrics[index] = new SummedMetric(shown[index][0], shown[index][1]);
    }
    return metrics;
  }

  public String name() {
    return name;
  }

  public String description() {
    return description;
  }
}
