package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** What a request about a table says of its session: Iceberg's settings (tablecrypt/spark/sql/statements/iceberg_settings.py), and who writes. */
class IcebergSettings {
  private static final String PREFIX = "spark.sql.iceberg.";

  static ObjectNode put(ObjectNode request) {
    SparkSession session = SparkSession.active();
    ObjectNode settings = request.putObject("settings");
    Iterator all = CollectionConverters.asJava(session.conf().getAll()).entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry each = (Map.Entry) all.next();
      String name = (String) each.getKey();
      if (name.startsWith(PREFIX)) {
        settings.put(name.substring(PREFIX.length()), (String) each.getValue());
      }
    }
    SparkContext application = session.sparkContext();
    ObjectNode engine = request.putObject("application");
    engine.put("version", application.version()).put("id", application.applicationId()).put("name", application.appName());
    return request;
  }
}
