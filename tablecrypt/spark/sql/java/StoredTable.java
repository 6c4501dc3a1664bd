package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import scala.Option;
import scala.collection.Iterator;

/** What Spark's session catalog says of a table whose rows are copied (tablecrypt/spark/sql/statements/spark_tables.py). */
class StoredTable {
  private final SparkSession session;
  private final HadoopFsRelation files;
  private final CatalogTable table;

  StoredTable(SparkSession session, LogicalPlan analyzed) {
    this.session = session;
    LogicalPlan plan = analyzed;
    // Spark pads the texts of CHAR columns in a projection.
    while (plan instanceof SubqueryAlias || plan instanceof Project) {
      plan = (LogicalPlan) plan.children().head();
    }
    LogicalRelation relation = plan instanceof LogicalRelation ? (LogicalRelation) plan : null;
    boolean isOfFiles = relation != null && relation.catalogTable().isDefined() && relation.relation() instanceof HadoopFsRelation;
    files = isOfFiles ? (HadoopFsRelation) relation.relation() : null;
    table = isOfFiles ? (CatalogTable) relation.catalogTable().get() : null;
  }

  /** Put what it is into the arguments of a procedure. The format is empty where it is none of files that Spark reads by itself. */
  void describe(ObjectNode arguments) {
    Object format = files == null ? null : files.fileFormat();
    arguments.put("source_format", format instanceof DataSourceRegister ? ((DataSourceRegister) format).shortName() : "");
    if (files == null) {
      return;
    }
    arguments.put("source_is_bucketed", table.bucketSpec().isDefined());
    arguments.set("source_partitions", Planner.JSON.valueToTree(files.partitionSchema().fieldNames()));
    arguments.set("missing_directories", missing());
  }

  private ArrayNode missing() {
    Configuration conf = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().newHadoopConf();
    ArrayNode missing = Planner.JSON.createArrayNode();
    try {
      ArrayList directories = directories();
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
  private ArrayList directories() {
    ArrayList directories = new ArrayList();
    if (table.partitionColumnNames().isEmpty()) {
      directories.add(table.location());
      return directories;
    }
    SessionCatalog catalog = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
    Iterator partitions = catalog.listPartitions(table.identifier(), Option.empty()).iterator();
    while (partitions.hasNext()) {
      directories.add(((CatalogTablePartition) partitions.next()).location());
    }
    return directories;
  }
}
