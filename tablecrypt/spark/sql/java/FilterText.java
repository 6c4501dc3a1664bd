package tablecrypt.jvm;

import java.util.Arrays;
import java.util.HexFormat;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;

/** Filters as a plan shows them, in the wording of Iceberg's plans. Those that rule out no file are left out. */
class FilterText {
  private static final String[] COMPARISONS = {"=", "<>", "<", "<=", ">", ">="};

  static String of(Predicate[] filters) {
    StringBuilder all = new StringBuilder();
    for (int index = 0; index < filters.length; index++) {
      String text = of(filters[index]);
      if (text != null) {
        all.append(all.length() > 0 ? ", " : "").append(text);
      }
    }
    return all.toString();
  }

  /** The text of a predicate; null where it, or a part of it, rules out no file. */
  private static String of(Expression predicate) {
    String name = predicate instanceof Predicate ? ((Predicate) predicate).name() : "";
    Expression[] parts = predicate.children();
    if (name.equals("AND") || name.equals("OR")) {
      return joined(of(parts[0]), " " + name + " ", of(parts[1]));
    }
    if (name.equals("NOT")) {
      return negated((Predicate) parts[0]);
    }
    if (name.equals("IS_NULL") || name.equals("IS_NOT_NULL")) {
      return joined(operand(parts[0]), name.equals("IS_NULL") ? " IS NULL" : " IS NOT NULL");
    }
    if (name.equals("STARTS_WITH")) {
      return parts[1] instanceof LiteralValue ? joined(operand(parts[0]), " LIKE '" + ((LiteralValue) parts[1]).value() + "%'") : null;
    }
    if (name.equals("IN")) {
      return listed(parts, " IN (");
    }
    if (name.equals("<=>") && !isNull(parts[1])) {
      return compared(operand(parts[0]), "=", parts[1]);
    }
    return Arrays.asList(COMPARISONS).contains(name) ? compared(operand(parts[0]), name.equals("<>") ? "!=" : name, parts[1]) : null;
  }

  private static String negated(Predicate predicate) {
    if (predicate.name().equals("IN")) {
      String column = operand(predicate.children()[0]);
      return joined(joined(column, " IS NOT NULL"), " AND ", listed(predicate.children(), " NOT IN ("));
    }
    String text = of(predicate);
    return text == null ? null : "NOT (" + text + ")";
  }

  private static String compared(String left, String operator, Expression right) {
    if (isNan(right)) {
      return left == null || !operator.equals("=") ? null : "is_nan(" + left + ")";
    }
    String value = operand(right);
    return left == null || value == null ? null : left + " " + operator + " " + value;
  }

  private static String listed(Expression[] parts, String in) {
    StringBuilder values = new StringBuilder();
    for (int index = 1; index < parts.length; index++) {
      String value = operand(parts[index]);
      if (value == null) {
        return null;
      }
      if (!isNull(parts[index])) {
        values.append(values.length() > 0 ? ", " : "").append(value);
      }
    }
    return joined(operand(parts[0]), in + values + ")");
  }

  private static String joined(String left, String rest) {
    return left == null ? null : left + rest;
  }

  private static String joined(String left, String between, String right) {
    return left == null || right == null ? null : "(" + left + between + right + ")";
  }

  /** A column, a value, or a function of one; null for anything else. */
  private static String operand(Expression expression) {
    if (expression instanceof NamedReference) {
      return String.join(".", ((NamedReference) expression).fieldNames());
    }
    if (expression instanceof LiteralValue) {
      return shown((LiteralValue) expression);
    }
    return SqlFilter.isPartitionFunction(expression) ? expression.toString() : null;
  }

  private static String shown(LiteralValue literal) {
    if (literal.value() instanceof byte[]) {
      return "X'" + HexFormat.of().withUpperCase().formatHex((byte[]) literal.value()) + "'";
    }
    return literal.value() instanceof UTF8String || literal.dataType() instanceof StringType ? "'" + literal.value() + "'" : "" + literal.value();
  }

  private static boolean isNull(Expression expression) {
    return expression instanceof LiteralValue && ((LiteralValue) expression).value() == null;
  }

  private static boolean isNan(Expression expression) {
    Object value = expression instanceof LiteralValue ? ((LiteralValue) expression).value() : null;
    return value instanceof Number && Double.isNaN(((Number) value).doubleValue());
  }
}
