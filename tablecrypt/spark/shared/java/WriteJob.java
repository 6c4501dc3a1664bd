package tablecrypt.jvm;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/** What every task of one write knows of it. None of it is secret: it is part of the Spark job's closure. */
public class WriteJob implements Serializable {
  public static final String DEK_LENGTH = "tablecrypt.dek-length";
  public static final String TARGET_FILE_SIZE = "tablecrypt.target-file-size";

  public final String coordinator;
  public final byte[] id;
  public final byte[] publicKey;
  private final String schema;
  private final HashMap innerIds;
  private final HashMap settings;
  private final SerializableConfiguration hadoop;

  /**
   * @param coordinator the RPC endpoint of the driver's WriteCoordinator
   * @param id 16 bytes, which bind a task's result to this write
   * @param publicKey what results are encrypted to; see SealedMessage
   * @param schema Spark's JSON of the columns in the file, with a field id on every field of a struct; what is not nullable is required
   * @param innerIds field ids of list elements, map keys and map values, by their Parquet path
   * @param settings "parquet.*", and the sizes named here
   */
  WriteJob(
      String coordinator, byte[] id, byte[] publicKey, String schema, Map innerIds, Map settings, Configuration hadoop) {
    this.coordinator = coordinator;
    this.id = id;
    this.publicKey = publicKey;
    this.schema = schema;
    this.innerIds = new HashMap(innerIds);
    this.settings = new HashMap(settings);
    this.hadoop = new SerializableConfiguration(hadoop);
  }

  StructType schema() {
    return (StructType) DataType.fromJson(schema);
  }

  Integer innerId(String parquetPath) {
    return (Integer) innerIds.get(parquetPath);
  }

  /** A setting that is a number. */
  long number(String name) {
    return Long.parseLong(text(name));
  }

  String text(String name) {
    return (String) settings.get(name);
  }

  /** The session's configuration, and in it how Iceberg's files are written, whatever the session says. A copy, for one task. */
  Configuration configuration() {
    Configuration conf = new Configuration(hadoop.value());
    conf.set(ParquetWriteSupport.SPARK_ROW_SCHEMA(), schema);
    conf.set("spark.sql.parquet.writeLegacyFormat", "false");
    conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    conf.set("spark.sql.parquet.fieldId.write.enabled", "true");
    Object[] names = settings.keySet().toArray();
    for (int index = 0; index < names.length; index++) {
      conf.set((String) names[index], text((String) names[index]));
    }
    return conf;
  }
}
