package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/**
 * The numbers that Spark's UI shows of a write: what its snapshot's summary counts, by Iceberg's names and descriptions. They count files,
 * rows and bytes; none is a value of a row or a key.
 */
class WriteMetrics {
  /** Names and descriptions. tablecrypt/spark/sql/writes/commits.py takes them from the summary. */
  private static final String[][] SHOWN = {
    {"addedDataFiles", "number of added data files"},
    {"addedDeleteFiles", "number of added delete files"},
    {"addedEqualityDeleteFiles", "number of added equality delete files"},
    {"addedEqualityDeletes", "number of added equality deletes records"},
    {"addedFileSizeInBytes", "total size of added files (bytes)"},
    {"addedPositionalDeleteFiles", "number of added positional delete files"},
    {"addedPositionalDeletes", "number of added positional deletes records"},
    {"addedRecords", "number of added records"},
    {"removedDataFiles", "number of removed data files"},
    {"removedDeleteFiles", "number of removed delete files"},
    {"removedEqualityDeleteFiles", "number of removed equality delete files"},
    {"removedEqualityDeletes", "number of removed equality deletes records"},
    {"removedFileSizeInBytes", "total size of removed files (bytes)"},
    {"removedPositionalDeleteFiles", "number of removed positional delete files"},
    {"removedPositionalDeletes", "number of removed positional deletes records"},
    {"removedRecords", "number of removed records"},
    {"totalDataFiles", "total number of data files"},
    {"totalDeleteFiles", "total number of delete files"},
    {"totalEqualityDeletes", "total number of equality deletes records"},
    {"totalFileSizeInBytes", "total data file size (bytes)"},
    {"totalPositionalDeletes", "total number of positional deletes records"},
    {"totalRecords", "total number of records"},
  };

  static CustomMetric[] all() {
    return SummedMetric.of(SHOWN);
  }

  /** @param committed the numbers of the write's snapshot by name; null before the commit */
  static CustomTaskMetric[] of(JsonNode committed) {
    if (committed == null) {
      return new CustomTaskMetric[0];
    }
    return (CustomTaskMetric[]) MetricValue.of(committed).toArray(new CustomTaskMetric[0]);
  }
}
