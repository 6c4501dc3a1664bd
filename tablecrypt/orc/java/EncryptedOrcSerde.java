package tablecrypt.orc;

import java.io.DataInput;
import java.io.DataOutput;
import org.apache.hadoop.hive.ql.io.orc.OrcSerde;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.io.Writable;

/** Hive's SerDe of ORC, for EncryptedOrcOutputFormat: the rows of Hive's own show their values to Hive's own writer alone. */
public final class EncryptedOrcSerde extends OrcSerde {

  private final Row row = new Row();

  @Override
  public Class<? extends Writable> getSerializedClass() {
    return Row.class;
  }

  @Override
  public Writable serialize(Object values, ObjectInspector inspector) {
    row.values = values;
    row.inspector = inspector;
    return row;
  }

  /** A row on its way to the writer in the same process. */
  static final class Row implements Writable {

    Object values;
    ObjectInspector inspector;

    @Override
    public void write(DataOutput output) {
      throw new UnsupportedOperationException("a row leaves the process in an ORC file only");
    }

    @Override
    public void readFields(DataInput input) {
      throw new UnsupportedOperationException("a row leaves the process in an ORC file only");
    }
  }
}
