package tablecrypt.judge;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.iceberg.encryption.KeyManagementClient;

/** What Iceberg wraps keys with here: the layout of tablecrypt/kms/client.py, under the one key of these tests. */
public class KeyFileKms implements KeyManagementClient {
  private static final int HEADER = 5;
  private static final int NONCE = 12;

  @Override
  public ByteBuffer wrapKey(ByteBuffer key, String id) {
    byte[] nonce = new byte[NONCE];
    new SecureRandom().nextBytes(nonce);
    byte[] wrapped = applied(Cipher.ENCRYPT_MODE, nonce, bytes(key), id);
    return ByteBuffer.allocate(HEADER + NONCE + wrapped.length).put((byte) 1).putInt(1).put(nonce).put(wrapped).flip();
  }

  @Override
  public ByteBuffer unwrapKey(ByteBuffer key, String id) {
    byte[] blob = bytes(key);
    byte[] nonce = Arrays.copyOfRange(blob, HEADER, HEADER + NONCE);
    return ByteBuffer.wrap(applied(Cipher.DECRYPT_MODE, nonce, Arrays.copyOfRange(blob, HEADER + NONCE, blob.length), id));
  }

  @Override
  public void initialize(Map<String, String> properties) {}

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] content = new byte[buffer.remaining()];
    buffer.duplicate().get(content);
    return content;
  }

  private static byte[] applied(int mode, byte[] nonce, byte[] content, String id) {
    try {
      Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
      byte[] key = System.getProperty("judge.key").getBytes(StandardCharsets.US_ASCII);
      cipher.init(mode, new SecretKeySpec(key, "AES"), new GCMParameterSpec(128, nonce));
      cipher.updateAAD(id.getBytes(StandardCharsets.UTF_8));
      return cipher.doFinal(content);
    } catch (GeneralSecurityException refused) {
      throw new IllegalStateException(refused);
    }
  }
}
