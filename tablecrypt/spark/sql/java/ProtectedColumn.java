package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A protected column of a table that a query reads, as a value of the query may depend on it: a struct holds it so many names further down, and
 * any other value was computed from it.
 */
class ProtectedColumn {
  /** Null where whoever read the table has found already that this user sees masks. */
  final SqlTable table;
  /** The names that lead to the column from the top of the table. */
  final String[] path;
  private final int depth;

  /** @param depth how many of the names have been followed */
  ProtectedColumn(SqlTable table, String[] path, int depth) {
    this.table = table;
    this.path = path;
    this.depth = depth;
  }

  /**
   * What a column of masks depends on.
   *
   * @param below JSON of the paths that lead from the column down to what is masked (tablecrypt/spark/masked_columns.py)
   */
  static Collection masked(String column, String below) {
    ArrayList found = new ArrayList();
    try {
      JsonNode paths = Planner.JSON.readTree(below);
      for (int index = 0; index < paths.size(); index++) {
        ArrayList path = (ArrayList) Planner.JSON.convertValue(paths.required(index), ArrayList.class);
        path.add(0, column);
        found.add(new ProtectedColumn(null, (String[]) path.toArray(new String[0]), 1));
      }
    } catch (IOException error) {
      throw new IllegalArgumentException("the mark of the column " + column + " is no JSON", error);
    }
    return found;
  }

  /** Whether the value depends on it. Otherwise the value is a struct that only contains it. */
  boolean decides() {
    return depth >= path.length;
  }

  /** What a field of the value depends on; null if not on this column. */
  ProtectedColumn below(String field) {
    if (decides()) {
      return this;
    }
    return path[depth].equals(field) ? new ProtectedColumn(table, path, depth + 1) : null;
  }

  /** Refuse a condition on it, if this user sees masks. */
  void check() {
    if (table == null) {
      throw new IllegalArgumentException(
          "ColumnKeyDeniedError: the query has a condition on " + String.join(".", path) + ", of which you see masks: its key does not let you use "
              + "its values. Leave the column out of conditions, or ask for the right to its key");
    }
    ObjectNode request = table.request("check_conditions");
    request.putArray("columns").add(Planner.JSON.valueToTree(path));
    table.planner.ask(request);
  }

  /** Why what this user sees of it may be masks; null where it is values. */
  String masks() {
    try {
      check();
      return null;
    } catch (RuntimeException error) {
      boolean isKnown = table == null || (error instanceof PlannerError && ((PlannerError) error).is("ColumnKeyDeniedError"));
      return isKnown ? "it reads masks of " + this : "whether it reads masks of " + this + " is not known: " + error.getMessage();
    }
  }

  /** Whether a column of a scan is or contains it. Of a struct, Spark reads the fields alone that a query names. */
  boolean isIn(String column, DataType type) {
    DataType here = type;
    for (int index = 1; path[0].equals(column) && index < path.length; index++) {
      if (!(here instanceof StructType) || ((StructType) here).getFieldIndex(path[index]).isEmpty()) {
        return !(here instanceof StructType);
      }
      here = ((StructType) here).apply(path[index]).dataType();
    }
    return path[0].equals(column);
  }

  public String toString() {
    return String.join(".", path) + (table == null ? "" : " of " + table.name());
  }

  public boolean equals(Object other) {
    if (!(other instanceof ProtectedColumn)) {
      return false;
    }
    ProtectedColumn column = (ProtectedColumn) other;
    return column.table == table && column.depth == depth && Arrays.equals(column.path, path);
  }

  public int hashCode() {
    return Arrays.hashCode(path) + depth;
  }
}
