package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.Locale;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.collection.Seq;

/** What a procedure copies: a table or view, or files of one format under a path (tablecrypt/spark/sql/statements/add_files.py, spark_tables.py). */
class CopiedSource {
  private static final String SESSION_CATALOG = "spark_catalog";

  private final Dataset rows;
  private final StructType directories;
  private final StoredFiles stored;

  private CopiedSource(Dataset rows, StructType directories, StoredFiles stored) {
    this.rows = rows;
    this.directories = directories;
    this.stored = stored;
  }

  static CopiedSource of(SparkSession session, String name) {
    Dataset rows = rows(session, name);
    StoredFiles stored = new StoredFiles(rows);
    // Tables that Spark knows have types for the names of directories.
    StructType directories = stored.isTable() ? new StructType() : stored.partitions();
    return new CopiedSource(directories.isEmpty() ? rows : withTexts(session, name, rows.schema(), directories), directories, stored);
  }

  /** Whether a name begins with that of Spark's session catalog. */
  static boolean isOfSession(SparkSession session, String name) {
    if (!name.toLowerCase(Locale.ROOT).contains(SESSION_CATALOG)) {
      return false;
    }
    String[] parts = SqlName.strings(parsed(session, name));
    return parts.length > 1 && parts[0].equalsIgnoreCase(SESSION_CATALOG);
  }

  /** Put the columns, and those that are texts of directories' names, into the arguments of a procedure. */
  void describe(ObjectNode arguments) {
    arguments.put("source_schema", rows.schema().json());
    ArrayNode names = arguments.putArray("directory_columns");
    for (int index = 0; index < directories.length(); index++) {
      names.add(directories.apply(index).name());
    }
    arguments.set("source_partitions", Planner.JSON.valueToTree(stored.partitions().fieldNames()));
  }

  /** Put what Spark's session catalog says of the table into the arguments of a procedure. */
  void describeTable(SparkSession session, ObjectNode arguments) {
    stored.describeTable(session, arguments);
  }

  /** Its rows that match a condition. */
  Dataset rows(String condition) {
    return rows.where(condition);
  }

  /** Refuse files, of these locations, whose rows Spark would read as masks. */
  void refuseMasks(SparkSession session, ArrayNode locations) {
    stored.refuseMasks(session, locations);
  }

  /** The location of each file that rows are of, and an empty text where some are of none that Spark can tell. */
  static ArrayNode files(Dataset rows) {
    ArrayNode files = Planner.JSON.createArrayNode();
    try {
      Iterator locations = rows.selectExpr(new String[] {"input_file_name()"}).distinct().collectAsList().iterator();
      while (locations.hasNext()) {
        files.add(((Row) locations.next()).getString(0));
      }
    } catch (Exception error) {
      if (!(error instanceof AnalysisException)) {
        Platform.throwException(error);
      }
      // Spark does not tell files of a view that reads several sources.
      files.add("");
    }
    return files;
  }

  /** Files under a path, where Spark would guess types from the names of directories, with these names as they are. */
  private static Dataset withTexts(SparkSession session, String name, StructType schema, StructType directories) {
    StructField[] fields = new StructField[schema.length()];
    for (int index = 0; index < fields.length; index++) {
      StructField field = schema.apply(index);
      boolean isText = directories.getFieldIndex(field.name()).isDefined();
      fields[index] = isText ? new StructField(field.name(), DataTypes.StringType, true, Metadata.empty()) : field;
    }
    String[] formatAndPath = SqlName.strings(parsed(session, name));
    return session.read().format(formatAndPath[0]).schema(new StructType(fields)).load(formatAndPath[1]);
  }

  private static Dataset rows(SparkSession session, String name) {
    try {
      return session.table(name);
    } catch (Exception error) {
      if (!(error instanceof AnalysisException) || !"UNABLE_TO_INFER_SCHEMA".equals(((AnalysisException) error).getCondition())) {
        Platform.throwException(error);
      }
      // There is no file under a path.
      return session.emptyDataFrame();
    }
  }

  private static Seq parsed(SparkSession session, String name) {
    try {
      return ((org.apache.spark.sql.classic.SparkSession) session).sessionState().sqlParser().parseMultipartIdentifier(name);
    } catch (Exception error) {
      Platform.throwException(error);
      return null;
    }
  }
}
