package tablecrypt.jvm;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's own Parquet format, always by field ids; what it builds keeps the read's keys alive. */
public class ReadFormat extends ParquetFileFormat {
  private final transient PlannedFiles files;
  private final transient StructType schema;

  ReadFormat(PlannedFiles files, StructType schema) {
    this.files = files;
    this.schema = schema;
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
    StructType required = FieldIds.restored(requiredSchema, schema);
    Function1 rows = super.buildReaderWithPartitionValues(spark, dataSchema, partitionSchema, required, filters, options, conf);
    return new ReadFunction(rows, files);
  }

  /** What generated code takes columns to be: as Spark says, but for those that may be views. */
  public Option vectorTypes(StructType requiredSchema, StructType partitionSchema, SQLConf conf) {
    Option types = super.vectorTypes(requiredSchema, partitionSchema, conf);
    if (types.isEmpty()) {
      return types;
    }
    Object[] names = CollectionConverters.asJava((Seq) types.get()).toArray();
    for (int index = 0; index < requiredSchema.length(); index++) {
      if (DictionaryViews.areOf(requiredSchema.fields()[index].dataType())) {
        names[index] = ColumnVector.class.getName();
      }
    }
    return Option.apply(ArraySeq$.MODULE$.unsafeWrapArray(names));
  }
}
