package tablecrypt.jvm;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** SELECT prod.system.iceberg_version(): what plans and commits here, as Python says. */
public class SqlVersion implements UnboundFunction, ScalarFunction, java.io.Serializable {
  static final String NAME = "iceberg_version";

  private final String version;

  SqlVersion(String version) {
    this.version = version;
  }

  public BoundFunction bind(StructType arguments) {
    if (arguments.length() > 0) {
      throw new UnsupportedOperationException(NAME + " takes no arguments");
    }
    return this;
  }

  public String name() {
    return NAME;
  }

  public String description() {
    return NAME + "()";
  }

  public DataType[] inputTypes() {
    return new DataType[0];
  }

  public DataType resultType() {
    return DataTypes.StringType;
  }

  public boolean isResultNullable() {
    return false;
  }

  public String canonicalName() {
    return "tablecrypt." + NAME;
  }

  public Object produceResult(InternalRow arguments) {
    return UTF8String.fromString(version);
  }
}
