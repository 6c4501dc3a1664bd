package tablecrypt.jvm;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/** Spark's own Parquet format, always by field ids; what it builds keeps the read's keys alive. */
public class ReadFormat extends ParquetFileFormat {
  private final transient PlannedFiles files;

  ReadFormat(PlannedFiles files) {
    this.files = files;
  }

  public Function1 buildReaderWithPartitionValues(
      SparkSession spark,
      StructType dataSchema,
      StructType partitionSchema,
      StructType requiredSchema,
      Seq filters,
      Map options,
      Configuration conf) {
    // In local mode tasks get this very object, in which Parquet looks for the crypto factory.
    conf.setClassLoader(new ReadLoader(conf.getClassLoader()));
    CheckedFileSystem.enable(conf, files.paths());
    Function1 rows = super.buildReaderWithPartitionValues(spark, dataSchema, partitionSchema, requiredSchema, filters, options, conf);
    return new ReadFunction(rows, files);
  }
}
