package tablecrypt.jvm;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.ref.WeakReference;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.spec.MGF1ParameterSpec;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.OAEPParameterSpec;
import javax.crypto.spec.PSource;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.sql.classic.SparkSession;
import scala.PartialFunction;

/**
 * The driver's side of all reads of one SparkContext: hands out keys to executors, and holds what this JVM asks a Python program.
 *
 * Python encrypts secrets that it hands over to this process's public key: Py4J writes its commands to debug logs.
 */
public class DriverEndpoint implements RpcEndpoint {
  private static final int NONCE_LENGTH = 12;
  private static final int TAG_BITS = 128;

  private static DriverEndpoint current;

  private final String name = "tablecrypt-" + UUID.randomUUID();
  private final RpcEnv env;
  private final KeyPair keyPair;
  private final Map reads = new ConcurrentHashMap();
  private ProgramRequests program;

  private DriverEndpoint(RpcEnv env) throws Exception {
    this.env = env;
    KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
    generator.initialize(3072);
    this.keyPair = generator.generateKeyPair();
    env.setupEndpoint(name, this);
  }

  /** The endpoint of the SparkContext that runs. */
  public static synchronized DriverEndpoint current() throws Exception {
    RpcEnv env = SparkProcess.rpcEnv();
    if (current == null || current.env != env) {
      current = new DriverEndpoint(env);
    }
    return current;
  }

  public String name() {
    return name;
  }

  public RpcEnv rpcEnv() {
    return env;
  }

  public PartialFunction receiveAndReply(RpcCallContext call) {
    return new ReadResponse(reads, call);
  }

  /** SubjectPublicKeyInfo of the RSA key that plans are encrypted to. */
  public byte[] publicKey() {
    return keyPair.getPublic().getEncoded();
  }

  /**
   * Open the queue of what this JVM asks a program.
   *
   * @param encryptedKey an AES key under RSA-OAEP (SHA-256 for both hashes)
   * @param encryptedProgramKey under that key, with this endpoint's name as AAD: the key of the program's responses
   */
  public synchronized ProgramRequests openProgram(byte[] encryptedKey, byte[] encryptedProgramKey) throws Exception {
    program = new ProgramRequests(decrypt(name, encryptedKey, encryptedProgramKey));
    return program;
  }

  public synchronized void onStop() {
    if (program != null) {
      program.close();
    }
  }

  /** How many reads are held by a plan or an RDD. */
  public int heldReads() {
    forgetReadsOfNoPlan();
    return reads.size();
  }

  /** Hand out keys and deletes of a read's files for as long as something else holds these files. */
  void hold(String read, PlannedFiles files) {
    forgetReadsOfNoPlan();
    reads.put(read, new WeakReference(files));
  }

  /**
   * Take the settings of a session's catalog, which may hold credentials.
   *
   * @param handle what the session has of them
   * @param encryptedKey an AES key under RSA-OAEP, as for a program
   * @param encryptedSettings JSON under that key, with the handle as AAD
   */
  public void giveCatalog(String handle, byte[] encryptedKey, byte[] encryptedSettings) throws Exception {
    CatalogSettings.give(handle, new ObjectMapper().readTree(decrypt(handle, encryptedKey, encryptedSettings)));
  }

  /** Let a session understand Iceberg's own ALTER TABLE statements, and refuse conditions on masks. */
  public void extend(SparkSession session) throws Exception {
    SqlExtensions.install(session);
  }

  /** Let a session refuse conditions on masks that DataFrames show. */
  public void refuseConditionsOnMasks(SparkSession session) {
    MaskedConditions.install(session);
  }

  private byte[] decrypt(String aad, byte[] encryptedKey, byte[] encryptedFiles) throws Exception {
    Cipher rsa = Cipher.getInstance("RSA/ECB/OAEPPadding");
    rsa.init(
        Cipher.DECRYPT_MODE,
        keyPair.getPrivate(),
        new OAEPParameterSpec("SHA-256", "MGF1", MGF1ParameterSpec.SHA256, PSource.PSpecified.DEFAULT));
    SecretKeySpec key = new SecretKeySpec(rsa.doFinal(encryptedKey), "AES");
    Cipher aes = Cipher.getInstance("AES/GCM/NoPadding");
    aes.init(Cipher.DECRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, encryptedFiles, 0, NONCE_LENGTH));
    aes.updateAAD(aad.getBytes("UTF-8"));
    return aes.doFinal(encryptedFiles, NONCE_LENGTH, encryptedFiles.length - NONCE_LENGTH);
  }

  private void forgetReadsOfNoPlan() {
    Object[] names = reads.keySet().toArray();
    for (int index = 0; index < names.length; index++) {
      WeakReference held = (WeakReference) reads.get(names[index]);
      if (held != null && held.get() == null) {
        reads.remove(names[index]);
      }
    }
  }
}
