package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedView;
import org.apache.spark.sql.catalyst.plans.logical.AlterViewAs;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.DropView;
import org.apache.spark.sql.catalyst.plans.logical.RenameTable;
import org.apache.spark.sql.catalyst.plans.logical.SetViewProperties;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.plans.logical.ShowViews;
import org.apache.spark.sql.catalyst.plans.logical.UnsetViewProperties;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's own statements about views, where these are in one of our catalogs: Spark parses them, and refuses them of any but its own catalog. */
class ViewStatements {
  private final SparkSession session;

  ViewStatements(SparkSession session) {
    this.session = session;
  }

  /** The plan to use instead of a parsed one, or that one itself. */
  Object instead(Object plan) {
    if (plan instanceof CreateView) {
      SqlName view = name(((CreateView) plan).child());
      return view == null ? plan : ViewStatement.planOfCreation(view, (CreateView) plan);
    }
    if (plan instanceof ShowViews) {
      return shown((ShowViews) plan);
    }
    if (plan instanceof DropView) {
      DropView drop = (DropView) plan;
      return about(drop.child(), plan, "drop_view", fields().put("if_exists", drop.ifExists()));
    }
    if (plan instanceof RenameTable && ((RenameTable) plan).isView()) {
      RenameTable rename = (RenameTable) plan;
      ObjectNode fields = fields();
      fields.set("to", Planner.JSON.valueToTree(SqlName.strings(rename.newName())));
      return about(rename.child(), plan, "rename_view", fields);
    }
    return isAboutOne(plan) ? described(plan) : altered(plan);
  }

  private Object shown(ShowViews show) {
    if (!(show.namespace() instanceof UnresolvedNamespace)) {
      return show;
    }
    SqlName namespace = SqlName.ofNamespace(session, ((UnresolvedNamespace) show.namespace()).multipartIdentifier());
    Option pattern = show.pattern();
    ObjectNode fields = fields().put("pattern", pattern.isDefined() ? (String) pattern.get() : null);
    return namespace == null ? show : ViewStatement.planOfNamespace(namespace, "show_views", fields);
  }

  private Object altered(Object plan) {
    if (plan instanceof SetViewProperties) {
      SetViewProperties set = (SetViewProperties) plan;
      ObjectNode fields = fields().put("if_exists", false);
      fields.set("updates", Planner.JSON.valueToTree(CollectionConverters.asJava(set.properties())));
      fields.putArray("removals");
      return about(set.child(), plan, "alter_view", fields);
    }
    if (plan instanceof UnsetViewProperties) {
      UnsetViewProperties unset = (UnsetViewProperties) plan;
      ObjectNode fields = fields().put("if_exists", unset.ifExists());
      fields.putObject("updates");
      fields.set("removals", Planner.JSON.valueToTree(SqlName.strings(unset.propertyKeys())));
      return about(unset.child(), plan, "alter_view", fields);
    }
    if (plan instanceof AlterViewAs && nameOfOne(((AlterViewAs) plan).child()) != null) {
      throw new IllegalArgumentException("ALTER VIEW … AS is not supported: CREATE OR REPLACE VIEW gives a view another query");
    }
    return plan;
  }

  private static boolean isAboutOne(Object plan) {
    return plan instanceof ShowCreateTable || plan instanceof DescribeRelation;
  }

  /** Statements for which a name may be that of a table or of a view. */
  private Object described(Object plan) {
    boolean isShown = plan instanceof ShowCreateTable;
    SqlName name = nameOfOne(isShown ? ((ShowCreateTable) plan).child() : ((DescribeRelation) plan).relation());
    if (name == null || !name.catalog.isView(name.identifier())) {
      return plan;
    }
    if (isShown) {
      return ViewStatement.plan(name, "show_create_view", fields());
    }
    return ViewStatement.plan(name, "describe_view", fields().put("extended", ((DescribeRelation) plan).isExtended()));
  }

  private Object about(Object child, Object plan, String operation, ObjectNode fields) {
    SqlName view = nameOfOne(child);
    return view == null ? plan : ViewStatement.plan(view, operation, fields);
  }

  /** The name of one that is there, which would be a temporary view's before it is one of ours. */
  private SqlName nameOfOne(Object unresolved) {
    Seq parts = parts(unresolved);
    return parts == null || session.sessionState().catalog().isTempView(parts) ? null : name(unresolved);
  }

  private SqlName name(Object unresolved) {
    Seq parts = parts(unresolved);
    SqlName name = parts == null ? null : SqlName.of(session, parts);
    return name == null || name.parts.length < 2 ? null : name;
  }

  private static Seq parts(Object unresolved) {
    if (unresolved instanceof UnresolvedIdentifier) {
      return ((UnresolvedIdentifier) unresolved).nameParts();
    }
    if (unresolved instanceof UnresolvedView) {
      return ((UnresolvedView) unresolved).multipartIdentifier();
    }
    return unresolved instanceof UnresolvedTableOrView ? ((UnresolvedTableOrView) unresolved).multipartIdentifier() : null;
  }

  private static ObjectNode fields() {
    return Planner.JSON.createObjectNode();
  }
}
