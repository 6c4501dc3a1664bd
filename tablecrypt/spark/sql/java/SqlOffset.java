package tablecrypt.jvm;

import org.apache.spark.sql.connector.read.streaming.Offset;

/** How far a stream has read. Spark keeps the text in the query's checkpoint; tablecrypt/spark/sql/streams/requests.py draws it. */
class SqlOffset extends Offset {
  private final String json;

  SqlOffset(String json) {
    this.json = json;
  }

  public String json() {
    return json;
  }
}
