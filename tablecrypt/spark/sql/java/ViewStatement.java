package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.ResolvedProcedure;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.catalyst.plans.logical.Call;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Nil$;

/** One statement about views of one of our catalogs, as a procedure: Spark calls it where it would run the statement. */
class ViewStatement implements BoundProcedure {
  private final SqlName name;
  private final boolean isNamespace;
  private final String operation;
  private final ObjectNode fields;
  private final CreateView asked;

  private ViewStatement(SqlName name, boolean isNamespace, String operation, ObjectNode fields, CreateView asked) {
    this.name = name;
    this.isNamespace = isNamespace;
    this.operation = operation;
    this.fields = fields;
    this.asked = asked;
  }

  /** The plan of a statement about a view. */
  static LogicalPlan plan(SqlName view, String operation, ObjectNode fields) {
    return new ViewStatement(view, false, operation, fields, null).call();
  }

  /** The plan of a statement about a namespace. */
  static LogicalPlan planOfNamespace(SqlName namespace, String operation, ObjectNode fields) {
    return new ViewStatement(namespace, true, operation, fields, null).call();
  }

  /** The plan of CREATE VIEW. */
  static LogicalPlan planOfCreation(SqlName view, CreateView asked) {
    return new ViewStatement(view, false, "create_view", Planner.JSON.createObjectNode(), asked).call();
  }

  private LogicalPlan call() {
    Identifier identifier = Identifier.of(new String[] {"system"}, operation);
    return new Call(new ResolvedProcedure(name.catalog, identifier, this), Nil$.MODULE$, true);
  }

  public String name() {
    return operation;
  }

  public String description() {
    return operation;
  }

  public boolean isDeterministic() {
    return false;
  }

  public ProcedureParameter[] parameters() {
    return new ProcedureParameter[0];
  }

  public Iterator call(InternalRow values) {
    SqlCatalog catalog = name.catalog;
    ObjectNode request = isNamespace ? catalog.request(operation, name.parts) : catalog.request(operation, name.identifier());
    request.setAll(fields);
    if (asked != null) {
      SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
      new ViewDefinition(session, catalog, name.identifier(), asked).put(request);
    }
    PlannerResponse response = ask(request);
    if (!response.json.has("rows")) {
      return Collections.emptyIterator();
    }
    return Collections.singletonList(new LocalTable(response.json.required("rows").asText(), response.bytes)).iterator();
  }

  /** Ask, and give errors for which Spark has a class as that. */
  private PlannerResponse ask(ObjectNode request) {
    try {
      return name.catalog.planner().ask(request);
    } catch (PlannerError error) {
      if (error.is("NoSuchViewError")) {
        Platform.throwException(new NoSuchViewException(name.identifier()));
      }
      if (error.is("ViewAlreadyExistsError")) {
        Platform.throwException(new ViewAlreadyExistsException(name.identifier()));
      }
      if (error.is("NoSuchNamespaceError")) {
        Platform.throwException(new NoSuchNamespaceException(isNamespace ? name.parts : name.identifier().namespace()));
      }
      throw error;
    }
  }
}
