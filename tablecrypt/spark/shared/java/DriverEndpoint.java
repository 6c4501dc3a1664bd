package tablecrypt.jvm;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.security.KeyPair;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
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
  private static DriverEndpoint current;

  private final String name = "tablecrypt-" + UUID.randomUUID();
  private final RpcEnv env;
  private final KeyPair keyPair;
  private final Map reads = new ConcurrentHashMap();
  private ProgramRequests program;

  private DriverEndpoint(RpcEnv env) throws Exception {
    this.env = env;
    this.keyPair = SealedMessage.newKeyPair();
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

  /** SubjectPublicKeyInfo of the key that plans are encrypted to. */
  public byte[] publicKey() {
    return keyPair.getPublic().getEncoded();
  }

  /**
   * Open the queue of what this JVM asks a program.
   *
   * @param encryptedKey the key of the program's responses, a sealed message under this endpoint's name
   */
  public synchronized ProgramRequests openProgram(byte[] encryptedKey) throws Exception {
    program = new ProgramRequests(decrypt(name, encryptedKey));
    return program;
  }

  public synchronized void onStop() {
    if (program != null) {
      program.close();
    }
  }

  /** Bytes of the file that Hadoop has at a location. */
  public long length(String location, Configuration conf) throws IOException {
    Path path = new Path(location);
    return path.getFileSystem(conf).getFileStatus(path).getLen();
  }

  /** The names of the reads that a plan or an RDD holds. */
  public List heldReads() {
    forgetReadsOfNoPlan();
    return new ArrayList(reads.keySet());
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
   * @param encryptedSettings JSON, a sealed message under the handle
   */
  public void giveCatalog(String handle, byte[] encryptedSettings) throws Exception {
    CatalogSettings.give(handle, new ObjectMapper().readTree(decrypt(handle, encryptedSettings)));
  }

  /** Let a session understand Iceberg's own ALTER TABLE statements, and refuse conditions on masks. */
  public void extend(SparkSession session) throws Exception {
    SqlExtensions.install(session);
  }

  /** Let a session refuse conditions on masks that DataFrames show. */
  public void refuseConditionsOnMasks(SparkSession session) {
    MaskedConditions.install(session);
  }

  private byte[] decrypt(String name, byte[] message) throws Exception {
    byte[] context = name.getBytes("UTF-8");
    return SealedMessage.decrypt(keyPair, context, context, message);
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
