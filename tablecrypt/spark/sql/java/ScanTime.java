package tablecrypt.jvm;

import java.util.Arrays;
import java.util.Locale;

/** How long tasks took, in nanoseconds: all of them together, the fastest, the one in the middle and the slowest. */
public class ScanTime extends SummedMetric {
  private static final String[] UNITS = {"ns", "us", "ms"};

  public ScanTime() {
    this("", "");
  }

  ScanTime(String name, String description) {
    super(name, description);
  }

  public String aggregateTaskMetrics(long[] tasks) {
    if (tasks.length == 0) {
      return shown(0);
    }
    long[] sorted = (long[]) tasks.clone();
    Arrays.sort(sorted);
    long total = 0;
    for (int index = 0; index < sorted.length; index++) {
      total += sorted[index];
    }
    String spread = shown(sorted[0]) + ", " + shown(sorted[sorted.length / 2]) + ", " + shown(sorted[sorted.length - 1]);
    return "total (min, med, max)\n" + shown(total) + " (" + spread + ")";
  }

  private static String shown(long nanos) {
    long whole = nanos;
    for (int unit = 0; unit < UNITS.length; unit++) {
      if (whole < 1000) {
        return whole + " " + UNITS[unit];
      }
      whole /= 1000;
    }
    return String.format(Locale.ROOT, "%.1f s", new Object[] {Double.valueOf(nanos / 1e9)});
  }
}
