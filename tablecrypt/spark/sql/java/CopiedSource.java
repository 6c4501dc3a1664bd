package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.Locale;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
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
  private StoredTable table;

  private CopiedSource(Dataset rows, StructType directories) {
    this.rows = rows;
    this.directories = directories;
  }

  static CopiedSource of(SparkSession session, String name) {
    Dataset rows = session.table(name);
    StructType directories = directories(((org.apache.spark.sql.classic.Dataset) rows).queryExecution().analyzed());
    return new CopiedSource(directories.isEmpty() ? rows : withTexts(session, name, rows.schema(), directories), directories);
  }

  /** A table of Spark's session catalog, with what its catalog says of it. */
  static CopiedSource ofTable(SparkSession session, String name) {
    // Spark remembers which files a table had when it was last read.
    session.catalog().refreshTable(name);
    CopiedSource source = of(session, name);
    source.table = new StoredTable(session, ((org.apache.spark.sql.classic.Dataset) source.rows).queryExecution().analyzed());
    return source;
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
    if (table != null) {
      table.describe(arguments);
    }
  }

  /** Its rows that match a condition. */
  Dataset rows(String condition) {
    return rows.where(condition);
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

  private static Seq parsed(SparkSession session, String name) {
    try {
      return ((org.apache.spark.sql.classic.SparkSession) session).sessionState().sqlParser().parseMultipartIdentifier(name);
    } catch (Exception error) {
      Platform.throwException(error);
      return null;
    }
  }

  /** The columns of partition directories under a path. Tables that Spark knows have types for theirs. */
  private static StructType directories(LogicalPlan plan) {
    if (plan instanceof SubqueryAlias) {
      return directories(((SubqueryAlias) plan).child());
    }
    if (!(plan instanceof LogicalRelation) || ((LogicalRelation) plan).catalogTable().isDefined()) {
      return new StructType();
    }
    Object relation = ((LogicalRelation) plan).relation();
    return relation instanceof HadoopFsRelation ? ((HadoopFsRelation) relation).partitionSchema() : new StructType();
  }
}
