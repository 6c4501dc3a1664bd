package tablecrypt.jvm;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Iceberg's bucket transform: the spec's 32-bit hash, without its sign, modulo the number of buckets. Dates and times come as numbers. */
class Bucket {
  /** The bucket of a number, a decimal, a text or its bytes. */
  static int of(int count, Object value) {
    return (hash(value) & Integer.MAX_VALUE) % count;
  }

  private static int hash(Object value) {
    if (value instanceof Integer || value instanceof Long) {
      return Murmur3_x86_32.hashLong(((Number) value).longValue(), 0);
    }
    if (value instanceof BigDecimal) {
      return hash(((BigDecimal) value).unscaledValue().toByteArray());
    }
    if (value instanceof String) {
      return hash(((String) value).getBytes(StandardCharsets.UTF_8));
    }
    return hash((byte[]) value);
  }

  private static int hash(byte[] bytes) {
    return Murmur3_x86_32.hashUnsafeBytes2(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, 0);
  }
}
