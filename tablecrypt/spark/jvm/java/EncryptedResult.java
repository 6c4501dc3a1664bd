package tablecrypt.jvm;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.interfaces.ECPublicKey;
import java.security.spec.X509EncodedKeySpec;
import javax.crypto.Cipher;
import javax.crypto.KeyAgreement;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** Encrypts a task's result to the driver's public key of the write. Layout and key derivation are drawn in keys.py. */
public class EncryptedResult {
  private static final int NONCE_LENGTH = 12;
  private static final int TAG_BITS = 128;
  private static final byte[] FIRST_BLOCK = new byte[] {0, 0, 0, 1};

  static byte[] encrypt(byte[] publicKey, byte[] job, int task, byte[] content) throws GeneralSecurityException {
    ECPublicKey driver = (ECPublicKey) KeyFactory.getInstance("EC").generatePublic(new X509EncodedKeySpec(publicKey));
    KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
    generator.initialize(driver.getParams());
    KeyPair own = generator.generateKeyPair();
    byte[] ownPublicKey = own.getPublic().getEncoded();
    byte[] nonce = new byte[NONCE_LENGTH];
    new SecureRandom().nextBytes(nonce);
    Cipher aes = Cipher.getInstance("AES/GCM/NoPadding");
    aes.init(Cipher.ENCRYPT_MODE, key(own, driver, job, ownPublicKey), new GCMParameterSpec(TAG_BITS, nonce));
    aes.updateAAD(ByteBuffer.allocate(job.length + 4).put(job).putInt(task).array());
    byte[] encrypted = aes.doFinal(content);
    return ByteBuffer.allocate(2 + ownPublicKey.length + NONCE_LENGTH + encrypted.length)
        .putShort((short) ownPublicKey.length)
        .put(ownPublicKey)
        .put(nonce)
        .put(encrypted)
        .array();
  }

  private static SecretKeySpec key(KeyPair own, ECPublicKey driver, byte[] job, byte[] ownPublicKey) throws GeneralSecurityException {
    KeyAgreement agreement = KeyAgreement.getInstance("ECDH");
    agreement.init(own.getPrivate());
    agreement.doPhase(driver, true);
    MessageDigest derivation = MessageDigest.getInstance("SHA-256");
    derivation.update(FIRST_BLOCK);
    derivation.update(agreement.generateSecret());
    derivation.update(job);
    derivation.update(ownPublicKey);
    derivation.update(driver.getEncoded());
    return new SecretKeySpec(derivation.digest(), "AES");
  }
}
