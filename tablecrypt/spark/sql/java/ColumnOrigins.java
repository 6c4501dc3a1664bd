package tablecrypt.jvm;

import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.BaseEvalPython;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ObjectConsumer;
import org.apache.spark.sql.catalyst.plans.logical.ObjectProducer;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Which values of a query depend on protected columns, and which of these columns its conditions look at.
 *
 * A condition is what decides which rows or values there are: WHERE, ON, HAVING, FILTER of an aggregate, CASE WHEN and IF, and each
 * expression that says yes or no. Showing, sorting, grouping and aggregating masks is no condition. What functions of a program make of whole
 * rows (mapInPandas, Datasets of Scala) is their own.
 */
class ColumnOrigins {
  private static final String MARK = "tablecrypt.masked";

  /** By the id of an attribute of the plan: the protected columns that its value depends on or contains. */
  private final Map known = new HashMap();
  private final Map common = new HashMap();
  private final Set compared = new LinkedHashSet();

  /** The protected columns that conditions look at. */
  Collection compared(LogicalPlan plan) {
    visit(plan);
    return compared;
  }

  private void visit(LogicalPlan plan) {
    visitAll(plan.children());
    visitAll(plan.subqueries());
    addOutput(plan);
    if (!known.isEmpty() && !(plan instanceof ObjectProducer) && !(plan instanceof ObjectConsumer)) {
      addConditions(plan);
    }
  }

  private void visitAll(Seq plans) {
    for (int index = 0; index < plans.size(); index++) {
      visit((LogicalPlan) plans.apply(index));
    }
  }

  // Values

  private void addOutput(LogicalPlan plan) {
    if (plan instanceof DataSourceV2Relation) {
      addRead(((DataSourceV2Relation) plan).table(), plan.output());
    } else if (plan instanceof DataSourceV2ScanRelation) {
      addRead(((DataSourceV2ScanRelation) plan).relation().table(), plan.output());
    } else if (plan instanceof StreamingDataSourceV2ScanRelation) {
      addRead(((StreamingDataSourceV2ScanRelation) plan).relation().table(), plan.output());
    } else if (plan.nodeName().endsWith("MapInArrow")) {
      addMarked(plan.output());
    } else if (plan instanceof InMemoryRelation) {
      LogicalPlan cached = ((InMemoryRelation) plan).cacheBuilder().logicalPlan();
      visit(cached);
      addSame(plan.output(), cached.output());
    } else if (plan instanceof CTERelationDef) {
      common.put(Long.valueOf(((CTERelationDef) plan).id()), plan);
    } else if (plan instanceof CTERelationRef) {
      LogicalPlan defined = (LogicalPlan) common.get(Long.valueOf(((CTERelationRef) plan).cteId()));
      if (defined != null) {
        addSame(plan.output(), defined.output());
      }
    } else if (plan instanceof Union) {
      for (int index = 0; index < plan.children().size(); index++) {
        addSame(plan.output(), ((LogicalPlan) plan.children().apply(index)).output());
      }
    } else if (plan instanceof Expand) {
      Seq projections = ((Expand) plan).projections();
      for (int index = 0; index < projections.size(); index++) {
        addSame(plan.output(), (Seq) projections.apply(index));
      }
    } else if (plan instanceof BaseEvalPython) {
      addSame(((BaseEvalPython) plan).resultAttrs(), ((BaseEvalPython) plan).udfs());
    } else if (plan instanceof Generate) {
      Seq made = ((Generate) plan).generatorOutput();
      for (int index = 0; index < made.size(); index++) {
        add((Attribute) made.apply(index), of((Expression) ((Generate) plan).generator()));
      }
    } else {
      addNamed(plan.expressions());
    }
  }

  private void addRead(Table table, Seq output) {
    ProtectedColumn[] columns = table instanceof SqlTable ? ((SqlTable) table).protectedColumns() : new ProtectedColumn[0];
    for (int index = 0; index < output.size(); index++) {
      Attribute attribute = (Attribute) output.apply(index);
      for (int number = 0; number < columns.length; number++) {
        ProtectedColumn here = columns[number].below(attribute.name());
        if (here != null) {
          add(attribute, Collections.singleton(here));
        }
      }
    }
  }

  private void addMarked(Seq output) {
    for (int index = 0; index < output.size(); index++) {
      Attribute attribute = (Attribute) output.apply(index);
      add(attribute, marked(attribute));
    }
  }

  /** Python marks the columns of which it shows masks. Elsewhere a mark says nothing: it may have been stored with a copy of the rows. */
  static Collection marked(Attribute attribute) {
    boolean isMarked = attribute.metadata().contains(MARK);
    return isMarked ? ProtectedColumn.masked(attribute.name(), attribute.metadata().getString(MARK)) : Collections.EMPTY_SET;
  }

  private void addSame(Seq attributes, Seq values) {
    for (int index = 0; index < attributes.size(); index++) {
      add((Attribute) attributes.apply(index), of((Expression) values.apply(index)));
    }
  }

  private void addNamed(Seq expressions) {
    for (int index = 0; index < expressions.size(); index++) {
      if (expressions.apply(index) instanceof Alias) {
        Alias named = (Alias) expressions.apply(index);
        add(named.toAttribute(), of(named.child()));
      }
    }
  }

  private void add(Attribute attribute, Collection columns) {
    if (columns.isEmpty()) {
      return;
    }
    Set all = (Set) known.get(attribute.exprId());
    if (all == null) {
      all = new LinkedHashSet();
      known.put(attribute.exprId(), all);
    }
    all.addAll(columns);
  }

  /** The protected columns that the value of an expression depends on or contains. */
  private Collection of(Expression expression) {
    if (expression instanceof Attribute) {
      Set found = (Set) known.get(((Attribute) expression).exprId());
      return found == null ? Collections.EMPTY_SET : found;
    }
    LinkedHashSet found = new LinkedHashSet();
    Seq children = expression.children();
    for (int index = 0; index < children.size(); index++) {
      found.addAll(of((Expression) children.apply(index)));
    }
    if (expression instanceof PlanExpression) {
      Seq output = ((LogicalPlan) ((PlanExpression) expression).plan()).output();
      for (int index = 0; index < output.size(); index++) {
        found.addAll(of((Expression) output.apply(index)));
      }
    }
    if (expression instanceof GetStructField) {
      GetStructField field = (GetStructField) expression;
      return below(found, field.childSchema().fields()[field.ordinal()].name());
    }
    // Whether a struct is null says nothing about its fields.
    return expression instanceof IsNull || expression instanceof IsNotNull ? deciding(found) : found;
  }

  private static Set below(Collection columns, String field) {
    LinkedHashSet found = new LinkedHashSet();
    java.util.Iterator all = columns.iterator();
    while (all.hasNext()) {
      ProtectedColumn here = ((ProtectedColumn) all.next()).below(field);
      if (here != null) {
        found.add(here);
      }
    }
    return found;
  }

  private static Set deciding(Collection columns) {
    LinkedHashSet found = new LinkedHashSet();
    java.util.Iterator all = columns.iterator();
    while (all.hasNext()) {
      ProtectedColumn each = (ProtectedColumn) all.next();
      if (each.decides()) {
        found.add(each);
      }
    }
    return found;
  }

  // Conditions

  private void addConditions(LogicalPlan plan) {
    if (plan instanceof Filter) {
      compared.addAll(of(((Filter) plan).condition()));
    }
    if (plan instanceof Join && ((Join) plan).condition().isDefined()) {
      compared.addAll(of((Expression) ((Join) plan).condition().get()));
    }
    addConditions(plan.expressions());
  }

  private void addConditions(Seq expressions) {
    for (int index = 0; index < expressions.size(); index++) {
      Expression each = (Expression) expressions.apply(index);
      if (each instanceof Predicate) {
        compared.addAll(of(each));
      } else if (each instanceof If) {
        compared.addAll(of(((If) each).predicate()));
      } else if (each instanceof CaseWhen) {
        Iterator branches = ((CaseWhen) each).branches().iterator();
        while (branches.hasNext()) {
          compared.addAll(of((Expression) ((Tuple2) branches.next())._1()));
        }
      } else if (each instanceof AggregateExpression && ((AggregateExpression) each).filter().isDefined()) {
        compared.addAll(of((Expression) ((AggregateExpression) each).filter().get()));
      }
      addConditions(each.children());
    }
  }
}
