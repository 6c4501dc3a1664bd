package tablecrypt.jvm;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.lang3.ClassUtils;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction2;

/**
 * Iceberg's own ALTER TABLE statements, which Spark's parser does not know: partition fields, the order and distribution of writes, identifier
 * fields, branches and tags. One more is a change of a column's type together with its comment, of which Spark takes one at a time.
 *
 * It stands before a session's parser and hands such a statement on a table of one of our catalogs to it as the call that does the same:
 * ALTER TABLE prod.db.t WRITE UNORDERED is CALL prod.system.alter_table(table => 'db.t', change => 'WRITE UNORDERED'). All else passes, but for
 * statements about views of our catalogs, which Spark's parser knows and its analyzer refuses: ViewStatements has calls for these.
 */
public class TableStatements implements InvocationHandler {
  private static final String PART = "(?:`(?:[^`]|``)+`|[\\p{L}\\p{N}_]+)";
  private static final String SPACE = "(?:\\s|--[^\\n]*\\n|/\\*[^*]*+(?:\\*(?!/)[^*]*+)*+\\*/)";
  /** Of the words of CHANGE, a blank stands for what may be between them. */
  private static final String CHANGE =
      "(?:ADD|DROP|REPLACE) PARTITION FIELD\\b|WRITE (?:LOCALLY|ORDERED|UNORDERED|DISTRIBUTED)\\b"
          + "|(?:ALTER|CHANGE) (?:COLUMN )?" + PART + "(?:\\s*\\.\\s*" + PART + ")* TYPE \\w+(?:\\s*\\([\\d\\s,]*\\))? COMMENT\\b"
          + "|(?:SET|DROP) IDENTIFIER FIELDS\\b|(?:CREATE|REPLACE|DROP|CREATE OR REPLACE) (?:BRANCH|TAG)\\b";
  private static final Pattern STATEMENT =
      Pattern.compile(
          (SPACE + "*+ALTER TABLE (" + PART + ")((?:\\s*\\.\\s*" + PART + ")*) ((?:" + CHANGE + ").*)").replace(" ", SPACE + "++"),
          Pattern.CASE_INSENSITIVE | Pattern.DOTALL | Pattern.UNICODE_CASE);

  private final SparkSession session;
  private final Object parser;

  private TableStatements(SparkSession session, Object parser) {
    this.session = session;
    this.parser = parser;
  }

  /** Put it before the parser of a session that runs. Return false if it stands there already. */
  static boolean install(SparkSession session) throws Exception {
    Field field = session.sessionState().getClass().getDeclaredField("sqlParser");
    field.setAccessible(true);
    Object parser = field.get(session.sessionState());
    if (isInstalled(parser)) {
      return false;
    }
    field.set(session.sessionState(), before(session, parser));
    return true;
  }

  /** A parser that knows the statements. */
  static Object before(SparkSession session, Object parser) {
    if (isInstalled(parser)) {
      return parser;
    }
    // Iceberg's procedures look for a kind of their own in the session's parser. Its class loader knows its kinds, ours need not.
    Class[] kinds = (Class[]) ClassUtils.getAllInterfaces(parser.getClass()).toArray(new Class[0]);
    return Proxy.newProxyInstance(parser.getClass().getClassLoader(), kinds, new TableStatements(session, parser));
  }

  private static boolean isInstalled(Object parser) {
    return Proxy.isProxyClass(parser.getClass()) && Proxy.getInvocationHandler(parser) instanceof TableStatements;
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    boolean isStatement = method.getName().startsWith("parsePlan");
    if (isStatement) {
      arguments[0] = understood((String) arguments[0]);
    }
    Object plan = parsed(method, arguments);
    SchemaEvolution.check(session, plan);
    return isStatement ? AppendedTables.distinguished(session, new ViewStatements(session).instead(plan)) : plan;
  }

  private Object parsed(Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(parser, arguments);
    } catch (InvocationTargetException refused) {
      throw refused.getCause();
    }
  }

  private String understood(String statement) {
    Matcher found = STATEMENT.matcher(statement);
    if (!found.matches()) {
      return statement;
    }
    String first = found.group(1);
    String rest = found.group(2).trim();
    boolean namesCatalog = rest.length() > 0 && SqlName.isOurs(session, bare(first));
    String catalog = namesCatalog ? first : session.catalog().currentCatalog();
    if (!namesCatalog && !SqlName.isOurs(session, catalog)) {
      return statement;
    }
    String table = namesCatalog ? rest.substring(1).trim() : first + rest;
    String call = (namesCatalog ? catalog : QuotedName.of(catalog)) + ".system.alter_table";
    return "CALL " + call + "(table => " + literal(table) + ", change => " + literal(found.group(3)) + ")";
  }

  private static String bare(String name) {
    return name.startsWith("`") ? name.substring(1, name.length() - 1).replace("``", "`") : name;
  }

  private static String literal(String text) {
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'";
  }

  /** What a new session's parser is built with. */
  static class Injected extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
      return before((SparkSession) session, parser);
    }
  }
}
