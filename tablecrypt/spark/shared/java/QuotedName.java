package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;

/** Names as Spark's parser takes them, whatever is in them. */
class QuotedName {
  static String of(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** The name of a part within others: db and t is `db`.`t`. */
  static String of(JsonNode parts) {
    StringBuilder path = new StringBuilder();
    for (int index = 0; index < parts.size(); index++) {
      path.append(index == 0 ? "" : ".").append(of(parts.required(index).asText()));
    }
    return path.toString();
  }
}
