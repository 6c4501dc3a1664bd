import io.trino.Session;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.testing.StandaloneQueryRunner;
import io.trino.testing.TestingSession;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Trino with one Iceberg catalog, `ice`, on a port of this machine: java -cp "trino/*" TrinoServer.java PORT NAME=VALUE...
 *
 * The settings are the catalog's. It is the server of Trino's own tests, since Maven has no other that starts from jars.
 */
public final class TrinoServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = new LinkedHashMap<>();
    for (int index = 1; index < arguments.length; index++) {
      String[] setting = arguments[index].split("=", 2);
      settings.put(setting[0], setting[1]);
    }
    Session session = TestingSession.testSessionBuilder().setCatalog("ice").setSchema("db").build();
    StandaloneQueryRunner runner =
        new StandaloneQueryRunner(session, server -> server.addProperty("http-server.http.port", arguments[0]));
    runner.installPlugin(new IcebergPlugin());
    runner.createCatalog("ice", "iceberg", settings);
    System.out.println("The catalog ice is there");
    Thread.currentThread().join();
  }
}
