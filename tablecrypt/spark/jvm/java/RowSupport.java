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

/** Spark's rows as Parquet records, with field ids where Spark leaves them out: on list elements, map keys and map values. */
public class RowSupport extends ParquetWriteSupport {
  private final WriteJob job;

  RowSupport(WriteJob job) {
    this.job = job;
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
}
