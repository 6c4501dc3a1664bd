package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What one task, or the driver, says of a metric of a scan or a write. */
class MetricValue implements CustomTaskMetric {
  private final String name;
  private final long value;

  MetricValue(String name, long value) {
    this.name = name;
    this.value = value;
  }

  /** Return what Python says of metrics, by their names. */
  static ArrayList of(JsonNode told) {
    ArrayList values = new ArrayList();
    for (Iterator each = told.fields(); each.hasNext(); ) {
      Map.Entry metric = (Map.Entry) each.next();
      values.add(new MetricValue((String) metric.getKey(), ((JsonNode) metric.getValue()).asLong()));
    }
    return values;
  }

  public String name() {
    return name;
  }

  public long value() {
    return value;
  }
}
