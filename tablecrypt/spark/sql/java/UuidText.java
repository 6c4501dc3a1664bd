package tablecrypt.jvm;

import java.nio.ByteBuffer;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** Uuids, which Spark has as text, and Iceberg as 16 bytes. */
class UuidText {
  private static final Pattern FORM = Pattern.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");

  /** The bytes; null where the text is that of no uuid. */
  static byte[] bytes(UTF8String text) {
    String shown = text.toString();
    if (!FORM.matcher(shown).matches()) {
      return null;
    }
    UUID value = UUID.fromString(shown);
    return ByteBuffer.allocate(16).putLong(value.getMostSignificantBits()).putLong(value.getLeastSignificantBits()).array();
  }
}
