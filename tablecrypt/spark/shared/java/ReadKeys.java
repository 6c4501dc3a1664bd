package tablecrypt.jvm;

import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;

/** Parquet's crypto factory for reading: the file's key is asked from the driver. A plaintext file is refused by Parquet itself. */
public class ReadKeys implements DecryptionPropertiesFactory {
  public static final String ENDPOINT = "tablecrypt.endpoint";
  public static final String READ = "tablecrypt.read";

  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path path) {
    return of(conf, CheckedFileSystem.stored(path));
  }

  /** The key and the AAD prefix of a stored file. */
  static FileDecryptionProperties of(Configuration conf, Path stored) {
    byte[] key = DriverClient.key(conf.get(ENDPOINT), conf.get(READ), stored.toString());
    int keyEnd = 1 + key[0];
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(Arrays.copyOfRange(key, 1, keyEnd));
    if (keyEnd < key.length) {
      builder = builder.withAADPrefix(Arrays.copyOfRange(key, keyEnd, key.length));
    }
    return builder.build();
  }
}
