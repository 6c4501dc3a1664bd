package tablecrypt.jvm;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.CTESubstitution$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSource;
import scala.Product;
import scala.collection.Iterable;
import scala.collection.immutable.Seq;

/**
 * The query of a view. Whoever can write to the catalog chooses it, and the reader's own Spark runs it: so it may read tables, and do nothing
 * else. A query of Spark can also run a script, call any method of Java by its name, and read any file.
 */
class ViewQuery {
  private static final Set CODE = new HashSet(Arrays.asList(new String[] {"java_method", "reflect", "try_reflect"}));
  private static final String COMPUTED_NAME = "WithUnresolvedIdentifier";

  private final String view;
  private final List relations = new ArrayList();
  private final List functions = new ArrayList();
  private final List readings = new ArrayList();
  private final Map readingsOfCommon = new HashMap();

  private ViewQuery(String view) {
    this.view = view;
  }

  /** Parse and check the SQL of a view. IllegalArgumentException where it is no query, or one that does more than to read tables. */
  static ViewQuery checked(SparkSession session, String view, String sql) {
    LogicalPlan plan = parsed(session, view, sql);
    ViewQuery query = new ViewQuery(view);
    query.checkNode(plan);
    // Spark's own rule says which names are those of a WITH. It would be an attacker who gains by a difference between its rule and one here.
    query.addReadings(CTESubstitution$.MODULE$.apply(plan), query.readings);
    query.checkFiles(session);
    return query;
  }

  /** Spark takes a name of two parts for a file, and the first for its format, where there is no such table. */
  private void checkFiles(SparkSession session) {
    for (int index = 0; index < relations.size(); index++) {
      String[] name = SqlName.strings((Seq) relations.get(index));
      if (name.length == 2 && isFormat(session, name[0])) {
        throw refused("reads the file " + name[1] + " (or a table of the namespace " + name[0] + ", before which the catalog has to be named)");
      }
    }
  }

  private static boolean isFormat(SparkSession session, String name) {
    // The full name of a class, which looking it up would load; no namespace here has a dot in its name.
    if (name.indexOf('.') >= 0) {
      return true;
    }
    try {
      DataSource.lookupDataSource(name, session.sessionState().conf());
      return true;
    } catch (Throwable error) {
      return false;
    }
  }

  /** Check that it names no temporary view or function of the session: nobody else has these. */
  void checkTemporary(SparkSession session) {
    for (int index = 0; index < relations.size(); index++) {
      Seq name = (Seq) relations.get(index);
      if (session.sessionState().catalog().isTempView(name)) {
        String shown = String.join(".", SqlName.strings(name));
        throw refused("reads the temporary view " + shown + ", which other sessions do not have");
      }
    }
    for (int index = 0; index < functions.size(); index++) {
      String function = (String) functions.get(index);
      if (session.sessionState().catalog().isTemporaryFunction(FunctionIdentifier.apply(function))) {
        throw refused("calls the temporary function " + function + ", which other sessions do not have");
      }
    }
  }

  /**
   * What it reads: for the view a list of names of tables and views, and of numbers, each as often as it is there. Each number is that of a
   * WITH, for which there is such a list too. Names have the catalog and namespace that they are resolved in.
   */
  Map readings(SparkSession session, String own, String[] from) {
    HashMap all = new HashMap();
    all.put(own, named(session, readings, from));
    Iterator each = readingsOfCommon.entrySet().iterator();
    while (each.hasNext()) {
      Map.Entry common = (Map.Entry) each.next();
      all.put(common.getKey(), named(session, (List) common.getValue(), from));
    }
    return all;
  }

  private static List named(SparkSession session, List readings, String[] from) {
    ArrayList names = new ArrayList();
    for (int index = 0; index < readings.size(); index++) {
      Object read = readings.get(index);
      names.add(read instanceof Seq ? SqlName.expanded(session, SqlName.strings((Seq) read), from) : read);
    }
    return names;
  }

  static LogicalPlan parsed(SparkSession session, String view, String sql) {
    try {
      return LiteralQuery.parsed(session, sql);
    } catch (Throwable error) {
      throw new IllegalArgumentException("the view " + view + " contains SQL that this Spark cannot parse as a query: " + error.getMessage(), error);
    }
  }

  /** Check what only its resolved plan shows: that it does not read the view itself, and no variable of the session. */
  void checkResolved(Object node, TableIdentifier own) {
    if (node == null) {
      return;
    }
    if (node instanceof View && ((View) node).desc().identifier().equals(own)) {
      throw refused("would read the view itself");
    }
    if (node.getClass().getSimpleName().equals("VariableReference")) {
      throw refused("reads a variable of the session");
    }
    scala.collection.Iterator inner = inner(node);
    while (inner.hasNext()) {
      checkResolved(inner.next(), own);
    }
  }

  private void checkNode(Object node) {
    // The value of NULL.
    if (node == null) {
      return;
    }
    if (node instanceof Command || node instanceof ParsedStatement) {
      throw refused("is no query");
    }
    if (node instanceof ScriptTransformation) {
      throw refused("runs a script (TRANSFORM … USING)");
    }
    if (node.getClass().getSimpleName().endsWith(COMPUTED_NAME)) {
      throw refused("computes a name (IDENTIFIER)");
    }
    if (node instanceof UnresolvedFunction) {
      String[] name = SqlName.strings(((UnresolvedFunction) node).nameParts());
      functions.add(name[name.length - 1]);
      if (CODE.contains(name[name.length - 1].toLowerCase(Locale.ROOT))) {
        throw refused("calls Java by the name of a method (" + name[name.length - 1] + ")");
      }
    }
    scala.collection.Iterator inner = inner(node);
    while (inner.hasNext()) {
      checkNode(inner.next());
    }
  }

  /** Add what a plan reads, in which the names of WITH are references by number. */
  private void addReadings(Object node, List found) {
    List into = found;
    if (node instanceof CTERelationDef) {
      into = new ArrayList();
      readingsOfCommon.put(Long.valueOf(((CTERelationDef) node).id()), into);
    }
    if (node instanceof CTERelationRef) {
      into.add(Long.valueOf(((CTERelationRef) node).cteId()));
    }
    if (node instanceof UnresolvedRelation) {
      Seq name = ((UnresolvedRelation) node).multipartIdentifier();
      relations.add(name);
      into.add(name);
    }
    scala.collection.Iterator inner = inner(node);
    while (inner.hasNext()) {
      addReadings(inner.next(), into);
    }
  }

  private IllegalArgumentException refused(String why) {
    return new IllegalArgumentException("the query of the view " + view + " " + why + ": a view of this catalog may not");
  }

  /** All that a node of a plan is made of: plans, expressions, and what holds some. Children alone would leave out WITH and subqueries. */
  private static scala.collection.Iterator inner(Object node) {
    if (node instanceof Iterable) {
      return ((Iterable) node).iterator();
    }
    return node instanceof Product && !(node instanceof CatalogTable) ? ((Product) node).productIterator() : scala.collection.Iterator$.MODULE$.empty();
  }
}
