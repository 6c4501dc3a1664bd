package tablecrypt.jvm;

import java.util.Locale;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The partition transforms as functions: Spark looks for them in the catalog of a table when it lays out rows, in no namespace. */
class TransformCatalog implements FunctionCatalog {
  public void initialize(String name, CaseInsensitiveStringMap options) {
    // There is nothing to open.
  }

  public String name() {
    return "tablecrypt";
  }

  public Identifier[] listFunctions(String[] namespace) {
    String[] names = hasFunctions(namespace) ? SqlTransform.names() : new String[0];
    Identifier[] functions = new Identifier[names.length];
    for (int index = 0; index < names.length; index++) {
      functions[index] = Identifier.of(namespace, names[index]);
    }
    return functions;
  }

  public UnboundFunction loadFunction(Identifier function) throws NoSuchFunctionException {
    SqlTransform transform = SqlTransform.named(known(function));
    if (transform == null) {
      throw new NoSuchFunctionException(function);
    }
    return transform;
  }

  /** The name by which a function is known here; empty where its namespace has none. */
  static String known(Identifier function) {
    return hasFunctions(function.namespace()) ? function.name().toLowerCase(Locale.ROOT) : "";
  }

  private static boolean hasFunctions(String[] namespace) {
    return namespace.length == 0 || (namespace.length == 1 && namespace[0].equals("system"));
  }
}
