package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/**
 * The numbers that Spark's UI shows of a scan: Iceberg's, by Iceberg's names and descriptions, and what decryption took. They count files,
 * bytes and time; none is a value of a row or a key.
 */
class ScanMetrics {
  private static final String PLANNING = "totalPlanningDuration";
  private static final String KEYS = "keysDuration";
  private static final String SCAN = "scanDuration";
  private static final String SPLITS = "numSplits";
  private static final String DELETES = "numDeletes";
  private static final String DECRYPTED = "decryptedBytes";
  private static final String BY_PYTHON = "pythonFiles";
  /** Names and descriptions. Those of planning are counted in tablecrypt/spark/sql/scans/plan.py. */
  private static final String[][] SHOWN = {
    {SPLITS, "number of file splits read"},
    {DELETES, "number of row deletes applied"},
    {PLANNING, "total planning duration (ms)"},
    {"totalDataManifest", "total data manifests"},
    {"scannedDataManifests", "number of scanned data manifests"},
    {"skippedDataManifests", "number of skipped data manifests"},
    {"resultDataFiles", "number of result data files"},
    {"skippedDataFiles", "number of skipped data files"},
    {"totalDataFileSize", "total data file size (bytes)"},
    {"totalDeleteManifests", "total delete manifests"},
    {"scannedDeleteManifests", "number of scanned delete manifests"},
    {"skippedDeleteManifests", "number of skipped delete manifest"},
    {"totalDeleteFileSize", "total delete file size (bytes)"},
    {"resultDeleteFiles", "number of result delete files"},
    {"equalityDeleteFiles", "number of equality delete files"},
    {"indexedDeleteFiles", "number of indexed delete files"},
    {"positionalDeleteFiles", "number of positional delete files"},
    {"skippedDeleteFiles", "number of skipped delete files"},
    {KEYS, "time to get keys and deletes of files (ms)"},
    {DECRYPTED, "bytes of columns that Spark's reader decrypted"},
    {BY_PYTHON, "number of files that Python reads"},
  };

  static CustomMetric[] all() {
    CustomMetric[] all = (CustomMetric[]) Arrays.copyOf(SummedMetric.of(SHOWN), SHOWN.length + 1);
    all[SHOWN.length] = new ScanTime(SCAN, "total scan duration");
    return all;
  }

  /**
   * What the driver says.
   *
   * @param planned of the plan's files
   * @param planning how many nanoseconds planning took
   * @param keys how many it took until the files' keys and deletes were there
   */
  static CustomTaskMetric[] ofDriver(JsonNode planned, long planning, long keys) {
    ArrayList values = MetricValue.of(planned);
    values.add(new MetricValue(PLANNING, milliseconds(planning)));
    values.add(new MetricValue(KEYS, milliseconds(keys)));
    return (CustomTaskMetric[]) values.toArray(new CustomTaskMetric[0]);
  }

  /** Rounded up: what took any time is not 0. */
  private static long milliseconds(long nanos) {
    return (nanos + 999999) / 1000000;
  }

  /** What one task says. It counts while it reads. */
  static class OfTask {
    /** Shared with the streams that the task opens. */
    final long[] decrypted = new long[1];
    long splits = 0;
    long byPython = 0;
    long deletes = 0;
    long nanos = 0;

    /** @param more rows that the open file lacks so far, because they are deleted */
    CustomTaskMetric[] values(long more) {
      return new CustomTaskMetric[] {
        new MetricValue(SPLITS, splits),
        new MetricValue(DELETES, deletes + more),
        new MetricValue(DECRYPTED, decrypted[0]),
        new MetricValue(BY_PYTHON, byPython),
        new MetricValue(SCAN, nanos)
      };
    }
  }
}
