package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What CREATE VIEW says of a view, as JSON. Its query may name nothing that readers would not find. */
class ViewDefinition {
  private final SparkSession session;
  private final SqlCatalog catalog;
  private final Identifier view;
  private final CreateView asked;

  ViewDefinition(SparkSession session, SqlCatalog catalog, Identifier view, CreateView asked) {
    this.session = session;
    this.catalog = catalog;
    this.view = view;
    this.asked = asked;
  }

  void put(ObjectNode request) {
    String name = catalog.name() + "." + view;
    String sql = (String) asked.originalText().get();
    ViewQuery query = ViewQuery.checked(session, name, sql);
    query.checkTemporary(session);
    Dataset frame = Dataset.ofRows(session, ViewQuery.parsed(session, name, sql));
    query.checkResolved(frame.queryExecution().analyzed(), SqlView.identifier(catalog.name(), view));
    String current = session.catalog().currentCatalog();
    String[] namespace = SqlName.currentNamespace(session);

    request.put("sql", sql);
    request.set("query_columns", Planner.JSON.valueToTree(frame.schema().fieldNames()));
    request.put("schema", named(name, frame.schema()).json());
    request.put("default_catalog", current.equals(catalog.name()) ? null : current);
    request.set("default_namespace", Planner.JSON.valueToTree(namespace));
    request.set("properties", Planner.JSON.valueToTree(CollectionConverters.asJava(asked.properties())));
    request.put("comment", (String) text(asked.comment()));
    request.put("mode", asked.allowExisting() ? "if-not-exists" : asked.replace() ? "or-replace" : null);
  }

  private static Object text(Option value) {
    return value.isDefined() ? value.get() : null;
  }

  /** The columns under the names and with the comments that the statement gives them. */
  private StructType named(String name, StructType query) {
    Seq given = asked.userSpecifiedColumns();
    if (given.isEmpty()) {
      return query;
    }
    StructField[] fields = query.fields();
    if (given.size() != fields.length) {
      throw new IllegalArgumentException(
          "the view " + name + " has names for " + given.size() + " columns, and its query has " + fields.length);
    }
    StructField[] columns = new StructField[fields.length];
    for (int index = 0; index < columns.length; index++) {
      Tuple2 column = (Tuple2) given.apply(index);
      StructField field = new StructField((String) column._1(), fields[index].dataType(), fields[index].nullable(), fields[index].metadata());
      Option comment = (Option) column._2();
      columns[index] = comment.isDefined() ? field.withComment((String) comment.get()) : field;
    }
    return new StructType(columns);
  }
}
