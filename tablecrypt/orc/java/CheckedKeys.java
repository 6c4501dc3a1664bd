package tablecrypt.orc;

import java.io.IOException;
import java.security.Key;
import java.util.List;
import org.apache.hadoop.security.authorize.AuthorizationException;
import org.apache.orc.impl.HadoopShims;
import org.apache.orc.impl.KeyProvider;
import org.apache.orc.impl.LocalKey;

/**
 * The Hadoop KMS's keys, with its failures said aloud: ORC takes any IOException while it opens a key for a missing right and shows masks,
 * so a failure becomes an unchecked exception here. A refusal stays one where masks are wanted.
 */
public final class CheckedKeys implements KeyProvider {

  private final KeyProvider keys;
  private final boolean masksWanted;

  public CheckedKeys(KeyProvider keys, boolean masksWanted) {
    this.keys = keys;
    this.masksWanted = masksWanted;
  }

  public List getKeyNames() throws IOException {
    return keys.getKeyNames();
  }

  public HadoopShims.KeyMetadata getCurrentKeyVersion(String name) throws IOException {
    try {
      return keys.getCurrentKeyVersion(name);
    } catch (NullPointerException unknown) {
      // What ORC makes of a KMS that answers with no metadata.
      throw new IllegalArgumentException("the KMS has no key " + name);
    } catch (AuthorizationException refusal) {
      throw refusal;
    } catch (IOException failure) {
      throw new IOException("the KMS did not describe the key " + name + ": " + withoutToken(failure));
    }
  }

  public LocalKey createLocalKey(HadoopShims.KeyMetadata master) throws IOException {
    try {
      return keys.createLocalKey(master);
    } catch (AuthorizationException refusal) {
      throw refusal;
    } catch (IOException failure) {
      throw new IOException("the KMS made no key under " + master + ": " + withoutToken(failure));
    }
  }

  public Key decryptLocalKey(HadoopShims.KeyMetadata master, byte[] encrypted) throws IOException {
    Key key;
    try {
      key = keys.decryptLocalKey(master, encrypted);
    } catch (AuthorizationException refusal) {
      if (masksWanted) {
        throw refusal;
      }
      throw new SecurityException("no right to the key " + master + ": " + refusal.getMessage());
    } catch (IOException failure) {
      throw new IllegalStateException("the KMS did not open a key under " + master + ": " + withoutToken(failure));
    }
    if (key == null) {
      throw new IllegalStateException("the KMS gave no key under " + master);
    }
    return key;
  }

  /** What failed, in words alone: Hadoop's client quotes the address of the KMS, where a token can stand. */
  private static String withoutToken(IOException failure) {
    return failure.toString().replaceAll("/token/[^/]+", "/token/...");
  }

  public HadoopShims.KeyProviderKind getKind() {
    return keys.getKind();
  }
}
