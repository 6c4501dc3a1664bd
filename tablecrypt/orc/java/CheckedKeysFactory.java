package tablecrypt.orc;

import java.io.IOException;
import java.util.Iterator;
import java.util.Random;
import java.util.ServiceLoader;
import org.apache.hadoop.conf.Configuration;
import org.apache.orc.impl.HadoopShimsFactory;
import org.apache.orc.impl.KeyProvider;

/** What ORC finds, by java.util.ServiceLoader, for the kinds "tablecrypt" and "tablecrypt-masks" of orc.key.provider. */
public final class CheckedKeysFactory implements KeyProvider.Factory {

  public KeyProvider create(String kind, Configuration conf, Random random) throws IOException {
    boolean masksWanted = "tablecrypt-masks".equals(kind);
    if (!masksWanted && !"tablecrypt".equals(kind)) {
      return null;
    }
    KeyProvider keys = HadoopShimsFactory.get().getHadoopKeyProvider(conf, random);
    if (keys == null) {
      throw new IOException("hadoop.security.key.provider.path names no KMS");
    }
    return new CheckedKeys(keys, masksWanted);
  }

  /** Whether ORC would find this class where the call runs: asked of executors by Spark SQL's java_method. */
  public static String find() {
    Iterator factories = ServiceLoader.load(KeyProvider.Factory.class).iterator();
    while (factories.hasNext()) {
      if (factories.next() instanceof CheckedKeysFactory) {
        return "found";
      }
    }
    return "missing";
  }
}
