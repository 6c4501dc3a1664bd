package tablecrypt.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext$;

/**
 * The views that one query reads, and which of them read which. Spark alone would follow a circle of views to a depth that its stack may not
 * hold, and views that read others twice until the plan fills its memory.
 *
 * Spark loads a view once for a query, however many views read it. So with each view that is loaded the readings of all are counted anew.
 */
class ViewNesting {
  private static final int MOST = 1000;
  // Spark's own limit is 100, for which the stack of a driver's thread (a megabyte) is too small.
  private static final int DEEPEST = 32;
  private static final int[] TABLE = {0, 0};
  private static final ThreadLocal CURRENT = new ThreadLocal();

  private final Object query;
  private final List views = new ArrayList();
  private final Map reads = new HashMap();

  private ViewNesting(Object query) {
    this.query = query;
  }

  /**
   * Note a view and what it reads. IllegalArgumentException where it reads itself, or a view reads too much or nests too deep.
   *
   * @param readings as of ViewQuery
   */
  static void enter(String view, Map readings) {
    // All that one analysis resolves has one cache of relations, and no other analysis has it.
    Object query = AnalysisContext$.MODULE$.get().relationCache();
    ViewNesting nesting = (ViewNesting) CURRENT.get();
    if (nesting == null || nesting.query != query) {
      nesting = new ViewNesting(query);
      CURRENT.set(nesting);
    }
    nesting.add(view, readings);
  }

  private void add(String view, Map readings) {
    views.add(view);
    reads.putAll(readings);
    HashMap counted = new HashMap();
    // A new circle goes through the new view. Any that began elsewhere would name another.
    count(view, counted, new LinkedHashSet());
    for (int index = 0; index < views.size(); index++) {
      count(views.get(index), counted, new LinkedHashSet());
    }
  }

  /**
   * Count the readings that a table, view or WITH comes to: its own, and those of what it reads, each as often as it is read. With them comes
   * how deep it nests views.
   */
  private int[] count(Object name, Map counted, Set within) {
    List names = (List) reads.get(name);
    if (names == null) {
      return TABLE;
    }
    if (counted.containsKey(name)) {
      return (int[]) counted.get(name);
    }
    within.add(name);
    int[] sum = new int[] {names.size(), 0};
    Iterator each = names.iterator();
    while (each.hasNext()) {
      Object read = each.next();
      if (!within.contains(read)) {
        check(sum, within);
        int[] inner = count(read, counted, within);
        sum[0] += inner[0];
        sum[1] = Math.max(sum[1], inner[1]);
      } else if (read instanceof String) {
        throw new IllegalArgumentException("the view " + read + " reads itself, maybe through other views: replace or drop one of them");
      }
      // A WITH RECURSIVE reads itself too: Spark ends that after a number of steps.
    }
    // A name of WITH is a part of the view.
    sum[1] += name instanceof String ? 1 : 0;
    check(sum, within);
    within.remove(name);
    counted.put(name, sum);
    return sum;
  }

  private static void check(int[] sum, Set within) {
    Object view = within.iterator().next();
    if (sum[0] > MOST || within.size() > MOST) {
      throw new IllegalArgumentException(
          "the view " + view + " comes to more than " + MOST + " readings of tables, views and names of WITH: let it read fewer");
    }
    if (sum[1] > DEEPEST) {
      throw new IllegalArgumentException("the view " + view + " nests views more than " + DEEPEST + " deep: let it read tables");
    }
  }
}
