package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.orc.EncryptionVariant;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;

/** Encrypted columns of ORC files, which Spark reads as masks, without an error, where it gets no key for them. */
class OrcMasks {
  private OrcMasks() {}

  /** Refuse ORC files with such columns: copied, their masks would pass for the values. An empty location is that of no file. */
  static void refuse(Configuration conf, ArrayNode locations) {
    try {
      for (int index = 0; index < locations.size(); index++) {
        String location = locations.get(index).asText();
        if (!location.isEmpty()) {
          refuse(location, OrcFile.createReader(new Path(URI.create(location)), OrcFile.readerOptions(conf)));
        }
      }
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void refuse(String location, Reader reader) throws IOException {
    try {
      EncryptionVariant[] variants = reader.getEncryptionVariants();
      for (int index = 0; index < variants.length; index++) {
        if (variants[index].getFileFooterKey() == null) {
          throw new IllegalArgumentException(
              location + ": Spark gets no key for the encrypted ORC column " + variants[index].getRoot().getFullFieldName()
                  + ", and would copy its mask in place of the values; give the session the key, or leave the file out");
        }
      }
    } finally {
      reader.close();
    }
  }
}
