package tablecrypt.jvm;

import org.apache.spark.sql.vectorized.ColumnVector;

/** Some rows of a column: row i is row `rows[i]` of it. */
class LiveVector extends ColumnView {
  private final int[] rows;

  LiveVector(ColumnVector column, int[] rows) {
    super(column);
    this.rows = rows;
  }

  int at(int row) {
    return rows[row];
  }

  public ColumnVector getChild(int ordinal) {
    return new LiveVector(column.getChild(ordinal), rows);
  }
}
