package tablecrypt.jvm;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The partition functions as Spark's compiled code calls them: static methods named `invoke`, of which the types of the arguments choose one.
 *
 * Dates are days and timestamps microseconds since 1970. Spark does not call them for a null number; other nulls give null.
 */
public class PartitionFunctions {
  private PartitionFunctions() {
    // Nothing to make.
  }

  static SqlTransform bound(String name, DataType[] inputs) {
    if (name.equals("bucket")) {
      return new Bucket(inputs);
    }
    if (name.equals("truncate")) {
      return new Truncate(inputs);
    }
    if (name.equals("years")) {
      return new Years(inputs);
    }
    if (name.equals("months")) {
      return new Months(inputs);
    }
    return name.equals("days") ? (SqlTransform) new Days(inputs) : new Hours(inputs);
  }

  static int positive(String name, int number) {
    if (number <= 0) {
      throw new IllegalArgumentException(name + " takes a number above 0 first, not " + number);
    }
    return number;
  }

  /** bucket(number, value). */
  public static class Bucket extends SqlTransform {
    Bucket(DataType[] inputs) {
      super(BUCKET, inputs);
    }

    public static int invoke(int buckets, int value) {
      return invoke(buckets, (long) value);
    }

    public static int invoke(int buckets, long value) {
      return BucketHash.of(positive(BUCKET, buckets), value);
    }

    public static Integer invoke(int buckets, UTF8String value) {
      return value == null ? null : invoke(buckets, value.getBytes());
    }

    public static Integer invoke(int buckets, byte[] value) {
      return value == null ? null : Integer.valueOf(BucketHash.of(positive(BUCKET, buckets), value));
    }

    public static Integer invoke(int buckets, Decimal value) {
      return value == null ? null : invoke(buckets, value.toJavaBigDecimal().unscaledValue().toByteArray());
    }
  }

  /** truncate(width, value). */
  public static class Truncate extends SqlTransform {
    Truncate(DataType[] inputs) {
      super(TRUNCATE, inputs);
    }

    public static byte invoke(int width, byte value) {
      return (byte) invoke(width, (int) value);
    }

    public static short invoke(int width, short value) {
      return (short) invoke(width, (int) value);
    }

    public static int invoke(int width, int value) {
      return value - Math.floorMod(value, positive(TRUNCATE, width));
    }

    public static long invoke(int width, long value) {
      return value - Math.floorMod(value, (long) positive(TRUNCATE, width));
    }

    public static UTF8String invoke(int width, UTF8String value) {
      return (UTF8String) cut(width, value);
    }

    public static byte[] invoke(int width, byte[] value) {
      return (byte[]) cut(width, value);
    }

    public static Decimal invoke(int width, Decimal value) {
      return (Decimal) cut(width, value);
    }

    private static Object cut(int width, Object value) {
      return value == null ? null : truncated(positive(TRUNCATE, width), value);
    }
  }

  /** years(value). */
  public static class Years extends SqlTransform {
    Years(DataType[] inputs) {
      super(YEARS, inputs);
    }

    public static int invoke(int day) {
      return yearOf(day);
    }

    public static int invoke(long micros) {
      return yearOf(dayOf(micros));
    }
  }

  /** months(value). */
  public static class Months extends SqlTransform {
    Months(DataType[] inputs) {
      super(MONTHS, inputs);
    }

    public static int invoke(int day) {
      return monthOf(day);
    }

    public static int invoke(long micros) {
      return monthOf(dayOf(micros));
    }
  }

  /** days(value). */
  public static class Days extends SqlTransform {
    Days(DataType[] inputs) {
      super(DAYS, inputs);
    }

    public static int invoke(int day) {
      return day;
    }

    public static int invoke(long micros) {
      return dayOf(micros);
    }
  }

  /** hours(value). */
  public static class Hours extends SqlTransform {
    Hours(DataType[] inputs) {
      super(HOURS, inputs);
    }

    public static int invoke(long micros) {
      return hourOf(micros);
    }
  }
}
