package tablecrypt.jvm;

import java.io.Serializable;
import java.math.BigInteger;
import org.apache.spark.sql.connector.catalog.functions.Reducer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Makes partition values of one transform those of a coarser one, so that Spark joins tables that are partitioned by the one and the other. */
class PartitionReducer implements Reducer, Serializable {
  private static final int HOURS_PER_DAY = 24;

  private final boolean divides;
  private final int number;

  private PartitionReducer(boolean divides, int number) {
    this.divides = divides;
    this.number = number;
  }

  /** Buckets modulo the greatest number that divides both counts; null where these are such buckets already, or would be a single one. */
  static PartitionReducer ofBuckets(int buckets, int others) {
    int common = BigInteger.valueOf(buckets).gcd(BigInteger.valueOf(others)).intValue();
    return common > 1 && common != buckets ? new PartitionReducer(false, common) : null;
  }

  /** Days of hours; null for other transforms, which Iceberg does not bring together. */
  static PartitionReducer ofTime(String name, String other) {
    return name.equals("hours") && other.equals("days") ? new PartitionReducer(true, HOURS_PER_DAY) : null;
  }

  /** Releases of Spark after 4.1 ask for it. */
  public DataType resultType() {
    return divides ? DataTypes.DateType : DataTypes.IntegerType;
  }

  /** @param value an Integer; null stays null */
  public Object reduce(Object value) {
    if (value == null) {
      return null;
    }
    int from = ((Integer) value).intValue();
    return Integer.valueOf(divides ? Math.floorDiv(from, number) : from % number);
  }
}
