package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;

/** The files that are all that a procedure copies, and what Spark's session catalog says of their table. */
class StoredFiles {
  private final HadoopFsRelation files;
  private final CatalogTable table;

  StoredFiles(Dataset rows) {
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) rows).queryExecution().analyzed();
    // Spark pads the texts of CHAR columns in a projection.
    while (plan instanceof SubqueryAlias || plan instanceof Project) {
      plan = (LogicalPlan) plan.children().head();
    }
    LogicalRelation relation = plan instanceof LogicalRelation ? (LogicalRelation) plan : null;
    boolean isOfFiles = relation != null && relation.relation() instanceof HadoopFsRelation;
    files = isOfFiles ? (HadoopFsRelation) relation.relation() : null;
    table = isOfFiles && relation.catalogTable().isDefined() ? (CatalogTable) relation.catalogTable().get() : null;
  }

  boolean isTable() {
    return table != null;
  }

  /** The columns by which they are partitioned. */
  StructType partitions() {
    return files == null ? new StructType() : files.partitionSchema();
  }

  /** Refuse those of which Spark would read masks. */
  void refuseMasks(SparkSession session, ArrayNode locations) {
    Object format = files == null ? null : files.fileFormat();
    if (format instanceof DataSourceRegister && ((DataSourceRegister) format).shortName().equals("orc")) {
      SessionState state = ((org.apache.spark.sql.classic.SparkSession) session).sessionState();
      OrcMasks.refuse(state.newHadoopConfWithOptions(files.options()), locations);
    }
  }

  /** Put what their table is into the arguments of a procedure. The format is empty where there is none. */
  void describeTable(SparkSession session, ObjectNode arguments) {
    Object format = table == null ? null : files.fileFormat();
    arguments.put("source_format", format instanceof DataSourceRegister ? ((DataSourceRegister) format).shortName() : "");
    if (table != null) {
      arguments.put("source_is_bucketed", table.bucketSpec().isDefined());
      arguments.set("missing_directories", missing(((org.apache.spark.sql.classic.SparkSession) session).sessionState()));
    }
  }

  private ArrayNode missing(SessionState state) {
    Configuration conf = state.newHadoopConf();
    ArrayNode missing = Planner.JSON.createArrayNode();
    try {
      ArrayList directories = directories(state.catalog());
      for (int index = 0; index < directories.size(); index++) {
        Path directory = new Path((URI) directories.get(index));
        if (!directory.getFileSystem(conf).exists(directory)) {
          missing.add(directory.toString());
        }
      }
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    return missing;
  }

  /** Where the catalog says that rows are. */
  private ArrayList directories(SessionCatalog catalog) {
    ArrayList directories = new ArrayList();
    if (table.partitionColumnNames().isEmpty()) {
      directories.add(table.location());
      return directories;
    }
    Iterator partitions = catalog.listPartitions(table.identifier(), Option.empty()).iterator();
    while (partitions.hasNext()) {
      directories.add(((CatalogTablePartition) partitions.next()).location());
    }
    return directories;
  }
}
