package tablecrypt.jvm;

import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;

/** Parquet's crypto factory for reading: the file's key is asked from the driver. A plaintext file is refused by Parquet itself. */
public class ReadKeys implements DecryptionPropertiesFactory {
  public static final String BROKER = "tablecrypt.broker";
  public static final String READ = "tablecrypt.read";

  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path path) {
    byte[] answer = BrokerClient.key(conf.get(BROKER), conf.get(READ), CheckedFileSystem.stored(path).toString());
    int keyEnd = 1 + answer[0];
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(Arrays.copyOfRange(answer, 1, keyEnd));
    if (keyEnd < answer.length) {
      builder = builder.withAADPrefix(Arrays.copyOfRange(answer, keyEnd, answer.length));
    }
    return builder.build();
  }
}
