package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One row: counts and extremes of a whole table or of whole partitions, which its manifests hold. */
class SqlAggregates implements LocalScan {
  private final String name;
  private final StructType schema;
  private final InternalRow row;

  private SqlAggregates(String name, StructType schema, InternalRow row) {
    this.name = name;
    this.schema = schema;
    this.row = row;
  }

  /**
   * The scan of these aggregates; null where rows have to be read for them.
   *
   * @param options of the read
   * @param filters all of which partition values answer
   */
  static SqlAggregates of(SqlTable table, CaseInsensitiveStringMap options, Aggregation aggregation, Predicate[] filters) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (aggregation.groupByExpressions().length > 0) {
      return null;
    }
    ObjectNode request = table.request("aggregate");
    request.set("filter", SqlFilter.json(filters));
    request.set("options", Planner.JSON.valueToTree(options.asCaseSensitiveMap()));
    ArrayNode asked = request.putArray("functions");
    StructType schema = new StructType();
    for (int index = 0; index < functions.length; index++) {
      NamedReference column = column(functions[index]);
      String name = name(functions[index]);
      DataType type = functions[index] instanceof CountStar ? DataTypes.LongType : type(column, table.schema());
      if (name == null || type == null) {
        return null;
      }
      ObjectNode function = asked.addObject().put("function", name);
      function.set("column", column == null ? null : Planner.JSON.valueToTree(column.fieldNames()));
      boolean isCount = name.equals("count");
      schema = schema.add(name + index, isCount ? DataTypes.LongType : type, !isCount);
    }
    JsonNode known = table.planner.ask(request).json;
    return known.has("values") ? new SqlAggregates(table.name(), schema, JsonValue.row(known.required("values"), schema)) : null;
  }

  private static String name(AggregateFunc function) {
    boolean isDistinct = function instanceof Count && ((Count) function).isDistinct();
    if (function instanceof CountStar || (function instanceof Count && !isDistinct)) {
      return "count";
    }
    return function instanceof Min ? "min" : function instanceof Max ? "max" : null;
  }

  /** The type of a column, which may be in structs; null where there is none. */
  private static DataType type(NamedReference column, DataType inside) {
    for (int index = 0; column != null && index < column.fieldNames().length; index++) {
      String name = column.fieldNames()[index];
      if (!(inside instanceof StructType) || ((StructType) inside).getFieldIndex(name).isEmpty()) {
        return null;
      }
      inside = ((StructType) inside).apply(name).dataType();
    }
    return column == null ? null : inside;
  }

  /** The column that a function is of; null where it is of none, or of an expression. */
  private static NamedReference column(AggregateFunc function) {
    Expression[] children = function.children();
    return children.length == 1 && children[0] instanceof NamedReference ? (NamedReference) children[0] : null;
  }

  public StructType readSchema() {
    return schema;
  }

  public InternalRow[] rows() {
    return new InternalRow[] {row};
  }

  public String description() {
    return name + ", of its manifests";
  }
}
