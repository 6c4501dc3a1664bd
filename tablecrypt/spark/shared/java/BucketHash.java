package tablecrypt.jvm;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Iceberg's bucket transform: the spec's 32-bit hash, without its sign, modulo the number of buckets. Dates and times come as numbers. */
class BucketHash {
  static int of(int count, long value) {
    return (Murmur3_x86_32.hashLong(value, 0) & Integer.MAX_VALUE) % count;
  }

  /** @param value a text in UTF-8, bytes, or the unscaled value of a decimal */
  static int of(int count, byte[] value) {
    return (Murmur3_x86_32.hashUnsafeBytes2(value, Platform.BYTE_ARRAY_OFFSET, value.length, 0) & Integer.MAX_VALUE) % count;
  }
}
