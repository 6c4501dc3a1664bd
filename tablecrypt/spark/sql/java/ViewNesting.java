package tablecrypt.jvm;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext$;

/**
 * The views that one query reads, and which of them read which. Spark alone would follow a circle of views to a depth that its stack may not
 * hold, and views that read others twice until the plan fills its memory.
 */
class ViewNesting {
  private static final int MOST = 1000;
  private static final ThreadLocal CURRENT = new ThreadLocal();

  private final Object query;
  private final Map reads = new HashMap();
  private final Map times = new HashMap();

  private ViewNesting(Object query) {
    this.query = query;
  }

  /** Note a view and the names in its query. IllegalArgumentException where it reads itself, or is read too many times. */
  static void enter(String view, List names) {
    // All that one analysis resolves has one cache of relations, and no other analysis has it.
    Object query = AnalysisContext$.MODULE$.get().relationCache();
    ViewNesting nesting = (ViewNesting) CURRENT.get();
    if (nesting == null || nesting.query != query) {
      nesting = new ViewNesting(query);
      CURRENT.set(nesting);
    }
    nesting.add(view, names);
  }

  private void add(String view, List names) {
    reads.put(view, names);
    if (reaches(names, view, MOST)) {
      throw new IllegalArgumentException("the view " + view + " reads itself, maybe through other views: replace or drop one of them");
    }
    int own = Math.max(1, timesOf(view));
    Iterator each = names.iterator();
    while (each.hasNext()) {
      Object name = each.next();
      int sum = timesOf(name) + own;
      times.put(name, Integer.valueOf(sum));
      if (sum > MOST) {
        throw new IllegalArgumentException("views read " + name + " more than " + MOST + " times in one query: read it fewer times");
      }
    }
  }

  private int timesOf(Object name) {
    Integer known = (Integer) times.get(name);
    return known == null ? 0 : known.intValue();
  }

  private boolean reaches(List names, String view, int depth) {
    if (names == null || depth == 0) {
      return false;
    }
    if (names.contains(view)) {
      return true;
    }
    Iterator each = names.iterator();
    while (each.hasNext()) {
      if (reaches((List) reads.get(each.next()), view, depth - 1)) {
        return true;
      }
    }
    return false;
  }
}
