package tablecrypt.jvm;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.LocalDate;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.Reducer;
import org.apache.spark.sql.connector.catalog.functions.ReducibleFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Iceberg's partition transforms on Spark's values: for writers, and as functions by which Spark distributes and sorts rows.
 *
 * A bound function is of a class with a static method for each type that it takes (PartitionFunctions), which Spark calls in compiled code.
 */
public class SqlTransform implements UnboundFunction, ScalarFunction, ReducibleFunction, Serializable {
  private static final String PREFIX = "tablecrypt.";
  private static final String IDENTITY = "identity";
  static final String BUCKET = "bucket";
  /** The bucket of a uuid, which Spark has as text. It is in no list: only the order of rows that are written asks for it. */
  static final String UUID_BUCKET = "uuid_bucket";
  static final String TRUNCATE = "truncate";
  static final String YEARS = "years";
  static final String MONTHS = "months";
  static final String DAYS = "days";
  static final String HOURS = "hours";
  private static final String[] FUNCTIONS = {BUCKET, TRUNCATE, YEARS, MONTHS, DAYS, HOURS};
  private static final long MICROS_PER_DAY = 86400000000L;
  private static final long MICROS_PER_HOUR = 3600000000L;
  private static final int EPOCH_YEAR = 1970;

  private final String name;
  private final DataType[] inputs;

  SqlTransform(String name, DataType[] inputs) {
    this.name = name;
    this.inputs = inputs;
  }

  static String[] names() {
    return (String[]) FUNCTIONS.clone();
  }

  /** The function of this name; null where there is none. */
  static SqlTransform named(String name) {
    return name.equals(UUID_BUCKET) || Arrays.asList(FUNCTIONS).contains(name) ? new SqlTransform(name, new DataType[0]) : null;
  }

  public BoundFunction bind(StructType arguments) {
    int parameters = takesNumber() ? 1 : 0;
    if (arguments.length() != parameters + 1) {
      throw new UnsupportedOperationException(name + " takes " + description() + ", not " + arguments.length() + " arguments");
    }
    if (takesNumber() && !isInt(arguments.fields()[0].dataType())) {
      throw new UnsupportedOperationException(name + " takes an integer first, not " + arguments.fields()[0].dataType().simpleString());
    }
    DataType source = arguments.fields()[parameters].dataType();
    // A truncated value keeps its type.
    DataType input = isInt(source) && !name.equals(TRUNCATE) ? DataTypes.IntegerType : source;
    if (!takes(input)) {
      throw new UnsupportedOperationException(name + " does not take " + source.simpleString());
    }
    DataType[] types = takesNumber() ? new DataType[] {DataTypes.IntegerType, input} : new DataType[] {input};
    return name.equals(UUID_BUCKET) ? new SqlTransform(name, types) : PartitionFunctions.bound(name, types);
  }

  public String name() {
    return name;
  }

  public String description() {
    if (name.equals(BUCKET)) {
      return "(number of buckets, column)";
    }
    return name.equals(TRUNCATE) ? "(width, column)" : "(column)";
  }

  public String canonicalName() {
    return PREFIX + name + "(" + source().catalogString() + ")";
  }

  /** Whether a name that Spark gives is the canonical name of one of these functions. */
  static boolean isOwn(String canonicalName) {
    return canonicalName.startsWith(PREFIX);
  }

  public DataType[] inputTypes() {
    return inputs;
  }

  public DataType resultType() {
    if (name.equals(TRUNCATE)) {
      return source();
    }
    return name.equals(DAYS) ? DataTypes.DateType : DataTypes.IntegerType;
  }

  public Object produceResult(InternalRow arguments) {
    int source = inputs.length - 1;
    if (arguments.isNullAt(source)) {
      return null;
    }
    int number = takesNumber() ? PartitionFunctions.positive(name, arguments.getInt(0)) : 0;
    return apply(name, number, arguments.get(source, inputs[source]), inputs[source]);
  }

  /** What makes buckets of a table those of another that has other ones; null where nothing does. */
  public Reducer reducer(int buckets, ReducibleFunction other, int otherBuckets) {
    boolean areBuckets = name.equals(BUCKET) && other instanceof SqlTransform && ((SqlTransform) other).name.equals(BUCKET);
    return areBuckets ? PartitionReducer.ofBuckets(buckets, otherBuckets) : null;
  }

  /** What makes partitions of a table those of another that are larger; null where nothing does. */
  public Reducer reducer(ReducibleFunction other) {
    return other instanceof SqlTransform ? PartitionReducer.ofTime(name, ((SqlTransform) other).name) : null;
  }

  private DataType source() {
    return inputs[inputs.length - 1];
  }

  private boolean takesNumber() {
    return name.equals(BUCKET) || name.equals(TRUNCATE) || name.equals(UUID_BUCKET);
  }

  private static boolean isInt(DataType type) {
    return type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType;
  }

  private boolean takes(DataType type) {
    boolean isTimestamp = type instanceof TimestampType || type instanceof TimestampNTZType;
    if (!takesNumber()) {
      return isTimestamp || (type instanceof DateType && !name.equals(HOURS));
    }
    if (name.equals(UUID_BUCKET)) {
      return type instanceof StringType;
    }
    boolean isNumber = isInt(type) || type instanceof LongType || type instanceof DecimalType;
    boolean isCut = isNumber || type instanceof StringType || type instanceof BinaryType;
    return name.equals(TRUNCATE) ? isCut : isCut || isTimestamp || type instanceof DateType;
  }

  /**
   * The partition value of a value that is not null. It may share memory with the value.
   *
   * @param value as Spark's rows hold it
   * @return Integer, Long, Boolean, Decimal, UTF8String or byte[]
   */
  static Object apply(String name, int number, Object value, DataType type) {
    if (name.equals(IDENTITY)) {
      return value;
    }
    if (name.equals(BUCKET)) {
      return bucket(number, value);
    }
    if (name.equals(UUID_BUCKET)) {
      byte[] bytes = UuidText.bytes((UTF8String) value);
      return bytes == null ? null : Integer.valueOf(BucketHash.of(number, bytes));
    }
    if (name.equals(TRUNCATE)) {
      return truncated(number, value);
    }
    if (name.equals(HOURS)) {
      return Integer.valueOf(hourOf(((Long) value).longValue()));
    }
    int day = value instanceof Integer ? ((Integer) value).intValue() : dayOf(((Long) value).longValue());
    if (name.equals(DAYS)) {
      return Integer.valueOf(day);
    }
    if (name.equals(YEARS)) {
      return Integer.valueOf(yearOf(day));
    }
    if (name.equals(MONTHS)) {
      return Integer.valueOf(monthOf(day));
    }
    throw new UnsupportedOperationException("the partition transform " + name + " is not known");
  }

  static int hourOf(long micros) {
    return (int) Math.floorDiv(micros, MICROS_PER_HOUR);
  }

  static int dayOf(long micros) {
    return (int) Math.floorDiv(micros, MICROS_PER_DAY);
  }

  static int yearOf(int day) {
    return LocalDate.ofEpochDay(day).getYear() - EPOCH_YEAR;
  }

  static int monthOf(int day) {
    LocalDate date = LocalDate.ofEpochDay(day);
    return (date.getYear() - EPOCH_YEAR) * 12 + date.getMonthValue() - 1;
  }

  private static Object bucket(int number, Object value) {
    if (value instanceof Integer || value instanceof Long) {
      return Integer.valueOf(BucketHash.of(number, ((Number) value).longValue()));
    }
    return Integer.valueOf(BucketHash.of(number, bytes(value)));
  }

  /** The bytes that are hashed. */
  private static byte[] bytes(Object value) {
    if (value instanceof UTF8String) {
      return ((UTF8String) value).getBytes();
    }
    return value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal().unscaledValue().toByteArray() : (byte[]) value;
  }

  static Object truncated(int width, Object value) {
    if (value instanceof Byte) {
      return Byte.valueOf(PartitionFunctions.Truncate.invoke(width, ((Byte) value).byteValue()));
    }
    if (value instanceof Short) {
      return Short.valueOf(PartitionFunctions.Truncate.invoke(width, ((Short) value).shortValue()));
    }
    if (value instanceof Integer) {
      return Integer.valueOf(PartitionFunctions.Truncate.invoke(width, ((Integer) value).intValue()));
    }
    if (value instanceof Long) {
      return Long.valueOf(PartitionFunctions.Truncate.invoke(width, ((Long) value).longValue()));
    }
    if (value instanceof UTF8String) {
      return ((UTF8String) value).substring(0, width);
    }
    if (value instanceof Decimal) {
      BigDecimal number = ((Decimal) value).toJavaBigDecimal();
      BigInteger unscaled = number.unscaledValue();
      return Decimal.apply(new BigDecimal(unscaled.subtract(unscaled.mod(BigInteger.valueOf(width))), number.scale()));
    }
    byte[] bytes = (byte[]) value;
    return Arrays.copyOf(bytes, Math.min(width, bytes.length));
  }
}
