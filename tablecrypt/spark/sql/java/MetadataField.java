package tablecrypt.jvm;

import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;

/** A column that every row has besides those of the table. */
class MetadataField implements MetadataColumn {
  private final String name;
  private final DataType type;
  private final boolean nullable;
  private final String metadata;

  MetadataField(String name, DataType type, boolean nullable, String metadata) {
    this.name = name;
    this.type = type;
    this.nullable = nullable;
    this.metadata = metadata;
  }

  public String name() {
    return name;
  }

  public DataType dataType() {
    return type;
  }

  public boolean isNullable() {
    return nullable;
  }

  public String metadataInJSON() {
    return metadata;
  }
}
