package tablecrypt.jvm;

import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;

/** Parquet's crypto factory for reading: the file's key is asked from the driver. A plaintext file is refused by Parquet itself. */
public class ReadKeys implements DecryptionPropertiesFactory {
  public static final String ENDPOINT = "tablecrypt.endpoint";
  public static final String READ = "tablecrypt.read";

  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path path) {
    return of(conf, CheckedFileSystem.stored(path)).properties();
  }

  /** What opens a stored file. */
  static OfFile of(Configuration conf, Path stored) {
    ByteBuffer content = ByteBuffer.wrap(DriverClient.key(conf.get(ENDPOINT), conf.get(READ), stored.toString()));
    byte[] dek = bytes(content, content.get());
    long length = content.getLong();
    return new OfFile(dek, length, bytes(content, content.remaining()));
  }

  private static byte[] bytes(ByteBuffer content, int count) {
    byte[] bytes = new byte[count];
    content.get(bytes);
    return bytes;
  }

  /** The key of a file, its length and its AAD prefix. */
  static class OfFile {
    private final byte[] dek;
    private final long length;
    private final byte[] aadPrefix;

    OfFile(byte[] dek, long length, byte[] aadPrefix) {
      this.dek = dek;
      this.length = length;
      this.aadPrefix = aadPrefix;
    }

    long length() {
      return length;
    }

    FileDecryptionProperties properties() {
      FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(dek);
      return (aadPrefix.length == 0 ? builder : builder.withAADPrefix(aadPrefix)).build();
    }
  }
}
