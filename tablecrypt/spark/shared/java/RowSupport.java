package tablecrypt.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.runtime.AbstractFunction0;

/**
 * Spark's rows as Parquet records, with field ids where Spark leaves them out: on list elements, map keys and map values.
 *
 * Days and instants are of the proleptic Gregorian calendar, Iceberg's own, whatever the session says.
 */
public class RowSupport extends ParquetWriteSupport {
  private final WriteJob job;

  private RowSupport(WriteJob job) {
    this.job = job;
  }

  static RowSupport of(WriteJob job) {
    SQLConf conf = new SQLConf();
    conf.settings().putAll(SQLConf$.MODULE$.get().settings());
    conf.setConfString("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED");
    return (RowSupport) SQLConf$.MODULE$.withExistingConf(conf, new Making(job));
  }

  public WriteSupport.WriteContext init(Configuration conf) {
    MessageType schema = super.init(conf).getSchema();
    return new WriteSupport.WriteContext(new MessageType("table", identified(schema, "")), new HashMap());
  }

  private List identified(GroupType group, String prefix) {
    ArrayList fields = new ArrayList();
    for (int index = 0; index < group.getFieldCount(); index++) {
      Type field = group.getType(index);
      String path = prefix + field.getName();
      if (!field.isPrimitive()) {
        field = field.asGroupType().withNewFields(identified(field.asGroupType(), path + "."));
      }
      Integer id = job.innerId(path);
      fields.add(id == null ? field : field.withId(id.intValue()));
    }
    return fields;
  }

  /** Spark's writer looks for its calendar in the session alone, when it is made. */
  private static class Making extends AbstractFunction0 {
    private final WriteJob job;

    Making(WriteJob job) {
      this.job = job;
    }

    public Object apply() {
      return new RowSupport(job);
    }
  }
}
