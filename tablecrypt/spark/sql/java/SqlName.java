package tablecrypt.jvm;

import java.util.ArrayList;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.collection.Iterator;
import scala.collection.Seq;

/** A name in a statement that means something in one of our catalogs. */
class SqlName {
  private static final String SETTING = "spark.sql.catalog.";
  private static final String SESSION_CATALOG = "spark_catalog";

  final SqlCatalog catalog;
  final String[] parts;

  private SqlName(SqlCatalog catalog, String[] parts) {
    this.catalog = catalog;
    this.parts = parts;
  }

  /** The table or view that a name means; null where it is not in one of our catalogs. */
  static SqlName of(SparkSession session, Seq name) {
    String[] parts = strings(name);
    if (parts.length > 1 && isCatalog(session, parts[0])) {
      return isOurs(session, parts[0]) ? new SqlName(catalog(session, parts[0]), behind(parts)) : null;
    }
    String current = session.catalog().currentCatalog();
    if (!isOurs(session, current)) {
      return null;
    }
    return new SqlName(catalog(session, current), parts.length == 1 ? joined(currentNamespace(session), parts) : parts);
  }

  /** The namespace that a name means, the current one where it has no parts; null where it is not in one of our catalogs. */
  static SqlName ofNamespace(SparkSession session, Seq name) {
    String[] parts = strings(name);
    if (parts.length > 0 && isCatalog(session, parts[0])) {
      return isOurs(session, parts[0]) ? new SqlName(catalog(session, parts[0]), behind(parts)) : null;
    }
    String current = session.catalog().currentCatalog();
    if (!isOurs(session, current)) {
      return null;
    }
    return new SqlName(catalog(session, current), parts.length == 0 ? currentNamespace(session) : parts);
  }

  /** Whether a catalog of the session is one of ours. */
  static boolean isOurs(SparkSession session, String catalog) {
    return SqlCatalog.class.getName().equals(setting(session, catalog));
  }

  static String[] currentNamespace(SparkSession session) {
    return (String[]) ofManager(session, "currentNamespace", new Class[0], new Object[0]);
  }

  static String[] strings(Seq name) {
    ArrayList parts = new ArrayList();
    Iterator each = name.iterator();
    while (each.hasNext()) {
      parts.add(each.next());
    }
    return (String[]) parts.toArray(new String[0]);
  }

  Identifier identifier() {
    String[] namespace = new String[parts.length - 1];
    System.arraycopy(parts, 0, namespace, 0, namespace.length);
    return Identifier.of(namespace, parts[parts.length - 1]);
  }

  /** A name in a view, with the catalog and namespace that it is resolved in. */
  static String expanded(SparkSession session, String[] name, String[] from) {
    String[] whole = name;
    if (name.length == 1) {
      whole = joined(from, name);
    } else if (!isCatalog(session, name[0])) {
      whole = joined(new String[] {from[0]}, name);
    }
    return String.join(".", whole);
  }

  /** The name of a view, as `expanded` gives it where another view reads it. */
  static String whole(String catalog, Identifier view) {
    return String.join(".", joined(new String[] {catalog}, joined(view.namespace(), new String[] {view.name()})));
  }

  private static boolean isCatalog(SparkSession session, String name) {
    return name.equals(SESSION_CATALOG) || setting(session, name).length() > 0;
  }

  private static String setting(SparkSession session, String catalog) {
    return session.sessionState().conf().getConfString(SETTING + catalog, "");
  }

  private static SqlCatalog catalog(SparkSession session, String name) {
    return (SqlCatalog) ofManager(session, "catalog", new Class[] {String.class}, new Object[] {name});
  }

  /** The manager is a class up to Spark 4.2 and an interface since: one jar cannot call its methods but by reflection. */
  private static Object ofManager(SparkSession session, String method, Class[] kinds, Object[] arguments) {
    Object manager = session.sessionState().catalogManager();
    try {
      return manager.getClass().getMethod(method, kinds).invoke(manager, arguments);
    } catch (Throwable error) {
      throw new IllegalStateException("Spark's catalogs cannot be asked for " + method, error);
    }
  }

  private static String[] behind(String[] parts) {
    String[] rest = new String[parts.length - 1];
    System.arraycopy(parts, 1, rest, 0, rest.length);
    return rest;
  }

  private static String[] joined(String[] first, String[] second) {
    String[] all = new String[first.length + second.length];
    System.arraycopy(first, 0, all, 0, first.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }
}
