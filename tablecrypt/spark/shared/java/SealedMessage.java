package tablecrypt.jvm;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.SecureRandom;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.X509EncodedKeySpec;
import javax.crypto.Cipher;
import javax.crypto.KeyAgreement;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** Messages encrypted to somebody's P-256 key. Layout, key derivation and what each is bound to are drawn in task_keys.py. */
public class SealedMessage {
  private static final int NONCE_LENGTH = 12;
  private static final int TAG_BITS = 128;
  private static final byte[] FIRST_BLOCK = new byte[] {0, 0, 0, 1};

  static KeyPair newKeyPair() throws GeneralSecurityException {
    KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
    generator.initialize(new ECGenParameterSpec("secp256r1"));
    return generator.generateKeyPair();
  }

  static byte[] encrypt(byte[] receiver, byte[] context, byte[] aad, byte[] content) throws GeneralSecurityException {
    KeyPair own = newKeyPair();
    byte[] sender = own.getPublic().getEncoded();
    SecretKeySpec key = key(own.getPrivate(), publicKey(receiver), context, sender, receiver);
    byte[] nonce = new byte[NONCE_LENGTH];
    new SecureRandom().nextBytes(nonce);
    byte[] encrypted = cipher(Cipher.ENCRYPT_MODE, key, nonce, aad).doFinal(content);
    return ByteBuffer.allocate(2 + sender.length + NONCE_LENGTH + encrypted.length)
        .putShort((short) sender.length)
        .put(sender)
        .put(nonce)
        .put(encrypted)
        .array();
  }

  static byte[] decrypt(KeyPair own, byte[] context, byte[] aad, byte[] message) throws GeneralSecurityException {
    ByteBuffer parts = ByteBuffer.wrap(message);
    byte[] sender = next(parts, parts.getShort());
    SecretKeySpec key = key(own.getPrivate(), publicKey(sender), context, sender, own.getPublic().getEncoded());
    byte[] nonce = next(parts, NONCE_LENGTH);
    return cipher(Cipher.DECRYPT_MODE, key, nonce, aad).doFinal(next(parts, parts.remaining()));
  }

  private static byte[] next(ByteBuffer parts, int length) {
    byte[] part = new byte[length];
    parts.get(part);
    return part;
  }

  private static PublicKey publicKey(byte[] encoded) throws GeneralSecurityException {
    return KeyFactory.getInstance("EC").generatePublic(new X509EncodedKeySpec(encoded));
  }

  private static Cipher cipher(int mode, SecretKeySpec key, byte[] nonce, byte[] aad) throws GeneralSecurityException {
    Cipher aes = Cipher.getInstance("AES/GCM/NoPadding");
    aes.init(mode, key, new GCMParameterSpec(TAG_BITS, nonce));
    aes.updateAAD(aad);
    return aes;
  }

  private static SecretKeySpec key(PrivateKey own, PublicKey other, byte[] context, byte[] sender, byte[] receiver)
      throws GeneralSecurityException {
    KeyAgreement agreement = KeyAgreement.getInstance("ECDH");
    agreement.init(own);
    agreement.doPhase(other, true);
    MessageDigest derivation = MessageDigest.getInstance("SHA-256");
    derivation.update(FIRST_BLOCK);
    derivation.update(agreement.generateSecret());
    derivation.update(context);
    derivation.update(sender);
    derivation.update(receiver);
    return new SecretKeySpec(derivation.digest(), "AES");
  }
}
