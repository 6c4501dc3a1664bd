import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.DriverFactory;
import org.apache.hadoop.hive.ql.IDriver;
import org.apache.hadoop.hive.ql.session.SessionState;

/**
 * Hive in one process, asked over lines: java -cp ... HiveEngine.java NAME=VALUE...
 *
 * stdin: a statement, or "set NAME=VALUE"; stdout: "ready", then for each line "ok COUNT" and COUNT rows, or "error TEXT". Rows, whose values
 * tabs separate, and texts are base64. The settings are Hive's own.
 */
public final class HiveEngine {
  private final HiveConf configuration = new HiveConf();
  private final PrintStream answers;

  private HiveEngine(PrintStream answers, String[] settings) {
    this.answers = answers;
    for (String setting : settings) {
      set(configuration, setting);
    }
    SessionState.start(configuration);
  }

  public static void main(String[] settings) throws Exception {
    PrintStream answers = System.out;
    // Hive prints what it does.
    System.setOut(System.err);
    HiveEngine engine = new HiveEngine(answers, settings);
    answers.println("ready");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      engine.answer(line);
    }
    System.exit(0);
  }

  private void answer(String line) {
    List<Object> rows;
    try {
      rows = line.startsWith("set ") ? changed(line.substring(4)) : rows(line);
    } catch (Throwable failure) {
      answers.println("error " + encoded(withCauses(failure)));
      return;
    }
    answers.println("ok " + rows.size());
    rows.forEach(row -> answers.println(encoded(String.valueOf(row))));
  }

  private List<Object> changed(String setting) {
    set(configuration, setting);
    set(SessionState.get().getConf(), setting);
    return List.of();
  }

  private List<Object> rows(String statement) throws Exception {
    List<Object> rows = new ArrayList<>();
    try (IDriver driver = DriverFactory.newDriver(configuration)) {
      driver.run(statement);
      List<Object> page = new ArrayList<>();
      while (driver.getResults(page)) {
        rows.addAll(page);
        page.clear();
      }
    }
    return rows;
  }

  private static void set(HiveConf configuration, String setting) {
    String[] parts = setting.split("=", 2);
    configuration.set(parts[0], parts[1]);
  }

  private static String withCauses(Throwable failure) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      text.append(cause).append('\n');
    }
    return text.toString();
  }

  private static String encoded(String text) {
    return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
  }
}
