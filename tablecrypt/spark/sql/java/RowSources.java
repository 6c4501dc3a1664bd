package tablecrypt.jvm;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.EmptyRDD;
import org.apache.spark.rdd.MapPartitionsRDD;
import org.apache.spark.rdd.ParallelCollectionRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.jdbc.JDBCRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import scala.collection.immutable.Seq;

/**
 * Where the rows of a statement come from, and so whether they may hold masks: who may wrap under a column's key and not unwrap writes rows
 * only if they hold none (tablecrypt/spark/sql/writes/commits.py).
 *
 * It looks at what an optimized plan reads, and at nothing that the plan does with it. A plan that reads a masked column may put its masks
 * into any column of its result, by functions of a program too. What is not known here may be masks.
 */
class RowSources {
  private static final String PROTECTED = "encryption.column.";
  /** What a stream may do with its rows. Anything else may remember rows of earlier batches, of another query even. */
  private static final Set FORGETFUL =
      new HashSet(
          Arrays.asList(
              new String[] {
                "Project", "Filter", "Union", "SubqueryAlias", "View", "ResolvedHint", "Generate", "Expand", "Sort", "Repartition",
                "RepartitionByExpression", "RebalancePartitions", "EventTimeWatermark", "BatchEvalPython", "ArrowEvalPython", "MapInPandas",
                "MapInArrow", "PythonMapInArrow", "MapPartitions", "MapElements", "TypedFilter", "SerializeFromObject", "DeserializeToObject"
              }));

  private final Set columns = new LinkedHashSet();
  private String unknown;

  /** Where the rows of an optimized plan come from. */
  static RowSources of(LogicalPlan plan) {
    RowSources sources = new RowSources();
    sources.visit(plan);
    return sources;
  }

  /** Why rows may hold masks; empty where none does. */
  String masks() {
    if (unknown != null) {
      return unknown;
    }
    Iterator each = columns.iterator();
    while (each.hasNext()) {
      String masks = ((ProtectedColumn) each.next()).masks();
      if (masks != null) {
        return masks;
      }
    }
    return "";
  }

  private void visit(LogicalPlan plan) {
    for (int index = 0; index < plan.children().size(); index++) {
      visit((LogicalPlan) plan.children().apply(index));
    }
    for (int index = 0; index < plan.subqueries().size(); index++) {
      visit((LogicalPlan) plan.subqueries().apply(index));
    }
    if (plan.nodeName().endsWith("MapInArrow")) {
      addMarked(plan.output());
    }
    if (plan.children().isEmpty()) {
      addLeaf(plan);
    } else if (plan.isStreaming() && !isForgetful(plan)) {
      add("its stream has a " + plan.nodeName() + ", which remembers rows that an earlier query may have read");
    }
  }

  /** A join remembers rows where both of its sides are streams. */
  private static boolean isForgetful(LogicalPlan plan) {
    int streams = 0;
    for (int index = 0; index < plan.children().size(); index++) {
      streams += ((LogicalPlan) plan.children().apply(index)).isStreaming() ? 1 : 0;
    }
    return FORGETFUL.contains(plan.nodeName()) || (plan.nodeName().equals("Join") && streams == 1);
  }

  private void addLeaf(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      addTable(((DataSourceV2ScanRelation) plan).relation().table(), plan.output());
    } else if (plan instanceof StreamingDataSourceV2ScanRelation) {
      addTable(((StreamingDataSourceV2ScanRelation) plan).relation().table(), plan.output());
    } else if (plan instanceof DataSourceV2Relation) {
      addTable(((DataSourceV2Relation) plan).table(), plan.output());
    } else if (plan instanceof InMemoryRelation) {
      visit(((InMemoryRelation) plan).cacheBuilder().logicalPlan());
    } else if (plan instanceof LogicalRDD) {
      if (!isOfProgram(((LogicalRDD) plan).rdd())) {
        add("it reads an RDD that is not made of values of the program alone");
      }
    } else if (!isWithoutMasks(plan)) {
      add("it reads " + plan.nodeName() + ", whose rows come from somewhere unknown");
    }
  }

  private static boolean isWithoutMasks(LogicalPlan plan) {
    if (plan instanceof LogicalRelation) {
      Object relation = ((LogicalRelation) plan).relation();
      return relation instanceof HadoopFsRelation || relation instanceof JDBCRelation;
    }
    // What a CTE and a loop refer to is in the same plan, and is looked at there.
    return plan instanceof LocalRelation || plan instanceof OneRowRelation || plan instanceof Range || plan instanceof CTERelationRef
        || plan instanceof HiveTableRelation || plan.nodeName().equals("UnionLoopRef");
  }

  private void addTable(Table table, Seq output) {
    String packageName = table.getClass().getPackageName();
    if (table instanceof SqlTable) {
      addProtected(((SqlTable) table).protectedColumns(), output);
    } else if (packageName.equals(RowSources.class.getPackageName())) {
      add("it reads " + table.name() + ", which is about another table");
    } else if (isProtected(table)) {
      add("it reads " + table.name() + " through another catalog, which does not tell masks from values");
    }
  }

  /** Whether another engine's connector reads a table with protected columns, and gives stored masks as values. */
  private static boolean isProtected(Table table) {
    Iterator names = properties(table).keySet().iterator();
    while (names.hasNext()) {
      if (((String) names.next()).startsWith(PROTECTED)) {
        return true;
      }
    }
    return false;
  }

  /** Since Spark 4.2 an interface that earlier releases lack declares the method. A class that was compiled there would need it here. */
  private static Map properties(Table table) {
    try {
      return (Map) Table.class.getMethod("properties", new Class[0]).invoke(table, new Object[0]);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException("the properties of " + table.name() + " cannot be read", error);
    }
  }

  private void addProtected(ProtectedColumn[] known, Seq output) {
    for (int index = 0; index < output.size(); index++) {
      Attribute attribute = (Attribute) output.apply(index);
      for (int number = 0; number < known.length; number++) {
        if (known[number].isIn(attribute.name(), attribute.dataType())) {
          columns.add(known[number]);
        }
      }
    }
  }

  private void addMarked(Seq output) {
    for (int index = 0; index < output.size(); index++) {
      columns.addAll(ColumnOrigins.marked((Attribute) output.apply(index)));
    }
  }

  /** Whether rows are a program's own values, and nothing that Spark or a file gave. */
  private static boolean isOfProgram(RDD rows) {
    Class kind = rows.getClass();
    if (kind == ParallelCollectionRDD.class || kind == EmptyRDD.class) {
      return true;
    }
    Seq parents = kind == MapPartitionsRDD.class || kind == PythonRDD.class ? rows.dependencies() : null;
    if (parents == null || parents.isEmpty()) {
      return false;
    }
    for (int index = 0; index < parents.size(); index++) {
      if (!isOfProgram(((Dependency) parents.apply(index)).rdd())) {
        return false;
      }
    }
    return true;
  }

  private void add(String reason) {
    unknown = unknown == null ? reason : unknown;
  }
}
