package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Changes of ALTER TABLE and ALTER NAMESPACE as JSON. A change that is not known here is refused, not left out. */
class SqlChange {
  static void put(ObjectNode request, TableChange[] changes) {
    ArrayNode all = request.putArray("changes");
    for (int index = 0; index < changes.length; index++) {
      all.add(json(changes[index]));
    }
  }

  /** Whether a change is of a column's default, whose value depends on the column's type. */
  static boolean setsDefault(TableChange[] changes) {
    for (int index = 0; index < changes.length; index++) {
      if (changes[index] instanceof TableChange.UpdateColumnDefaultValue) {
        return true;
      }
    }
    return false;
  }

  /** Add the values of the defaults to the changes of a request. */
  static void putDefaults(ObjectNode request, TableChange[] changes, StructType schema) {
    for (int index = 0; index < changes.length; index++) {
      if (changes[index] instanceof TableChange.UpdateColumnDefaultValue) {
        TableChange.UpdateColumnDefaultValue update = (TableChange.UpdateColumnDefaultValue) changes[index];
        ObjectNode node = (ObjectNode) request.required("changes").required(index);
        node.set("default", SqlDefault.json(update.newDefaultValue(), update.fieldNames(), schema));
      }
    }
  }

  static void put(ObjectNode request, NamespaceChange[] changes) {
    ObjectNode updates = request.putObject("updates");
    ArrayNode removals = request.putArray("removals");
    for (int index = 0; index < changes.length; index++) {
      if (changes[index] instanceof NamespaceChange.SetProperty) {
        NamespaceChange.SetProperty set = (NamespaceChange.SetProperty) changes[index];
        updates.put(set.property(), set.value());
      } else {
        removals.add(((NamespaceChange.RemoveProperty) changes[index]).property());
      }
    }
  }

  private static ObjectNode json(TableChange change) {
    ObjectNode node = Planner.JSON.createObjectNode().put("change", change.getClass().getSimpleName());
    if (change instanceof TableChange.SetProperty) {
      TableChange.SetProperty set = (TableChange.SetProperty) change;
      return node.put("property", set.property()).put("value", set.value());
    }
    if (change instanceof TableChange.RemoveProperty) {
      return node.put("property", ((TableChange.RemoveProperty) change).property());
    }
    if (change instanceof TableChange.ColumnChange) {
      node.set("column", Planner.JSON.valueToTree(((TableChange.ColumnChange) change).fieldNames()));
      return column(node, change);
    }
    throw unknown(change);
  }

  private static ObjectNode column(ObjectNode node, TableChange change) {
    if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn add = (TableChange.AddColumn) change;
      node.put("type", alone(add.dataType())).put("nullable", add.isNullable()).put("comment", add.comment());
      node.set("default", SqlDefault.json(add.defaultValue()));
      return at(node, add.position());
    }
    if (change instanceof TableChange.RenameColumn) {
      return node.put("to", ((TableChange.RenameColumn) change).newName());
    }
    if (change instanceof TableChange.UpdateColumnType) {
      return node.put("type", alone(((TableChange.UpdateColumnType) change).newDataType()));
    }
    if (change instanceof TableChange.UpdateColumnNullability) {
      return node.put("nullable", ((TableChange.UpdateColumnNullability) change).nullable());
    }
    if (change instanceof TableChange.UpdateColumnComment) {
      return node.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    }
    if (change instanceof TableChange.UpdateColumnPosition) {
      return at(node, ((TableChange.UpdateColumnPosition) change).position());
    }
    if (change instanceof TableChange.DeleteColumn || change instanceof TableChange.UpdateColumnDefaultValue) {
      return node;
    }
    throw unknown(change);
  }

  /** A type as that of a struct's only field: of a type by itself, Spark's JSON leaves out the collation. */
  private static String alone(DataType type) {
    return new StructType().add("alone", type).json();
  }

  private static ObjectNode at(ObjectNode node, TableChange.ColumnPosition position) {
    if (position instanceof TableChange.After) {
      return node.put("after", ((TableChange.After) position).column());
    }
    return node.put("first", position != null);
  }

  private static RuntimeException unknown(TableChange change) {
    return new UnsupportedOperationException("ALTER TABLE: tables of this catalog do not support " + change.getClass().getSimpleName());
  }
}
