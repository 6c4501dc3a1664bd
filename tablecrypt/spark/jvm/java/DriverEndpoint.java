package tablecrypt.jvm;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.ref.WeakReference;
import java.security.KeyPair;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import scala.None$;
import scala.Option;
import scala.PartialFunction;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The driver's side of all reads of one SparkContext: takes in what Python planned, hands out keys to executors, and makes Datasets.
 *
 * Python encrypts what it hands over to this process's public key: Py4J writes its commands to debug logs.
 */
public class DriverEndpoint implements RpcEndpoint {
  private static DriverEndpoint current;

  private final String name = "tablecrypt-" + UUID.randomUUID();
  private final RpcEnv env;
  private final KeyPair keyPair;
  private final Map reads = new ConcurrentHashMap();

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

  /** What a program writes a DataFrame of its own with. */
  public ProgramPlanner newProgram() {
    return new ProgramPlanner();
  }

  /** How many reads are held by a plan or an RDD. */
  public int heldReads() {
    forgetReadsOfNoPlan();
    return reads.size();
  }

  /**
   * Make the Dataset of one read: the columns of `schema`, and of files with deletes only the live rows.
   *
   * @param encryptedFiles a sealed message under the read's name
   */
  public Dataset dataset(
      SparkSession spark,
      String read,
      String numberColumn,
      byte[] encryptedFiles,
      StructType schema,
      Map options,
      boolean withDeletes)
      throws Exception {
    PlannedFiles files = new PlannedFiles(numberColumn, decrypt(read, encryptedFiles));
    hold(read, files);
    // As a column of the file itself, a row's position costs less than as a field of Spark's _metadata.
    String position = ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME();
    StructType stored = withDeletes ? schema.add(position, DataTypes.LongType, true) : schema;
    Option noBuckets = None$.MODULE$;
    HadoopFsRelation relation =
        new HadoopFsRelation(
            files,
            files.partitionSchema(),
            stored,
            noBuckets,
            new ReadFormat(files, stored),
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options)),
            spark);
    Dataset rows = spark.baseRelationToDataFrame(relation);
    return withDeletes ? rows.filter(isLive(read, numberColumn, position)).drop(position) : rows;
  }

  /**
   * Columns under other names, and without metadata.
   *
   * @param names a JSON array with an array for each column: what to select, quoted, and the name to give it
   */
  public Dataset named(Dataset rows, String names) throws Exception {
    String[][] pairs = (String[][]) new ObjectMapper().readValue(names, String[][].class);
    Column[] columns = new Column[pairs.length];
    for (int index = 0; index < columns.length; index++) {
      columns[index] = functions.col(pairs[index][0]).as(pairs[index][1], Metadata.empty());
    }
    return rows.select(scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(columns));
  }

  private Column isLive(String read, String numberColumn, String position) {
    Column[] columns = new Column[] {functions.col(numberColumn), functions.col(position)};
    return called(functions.udf(new LiveRows(name, read), DataTypes.BooleanType).withName("is_live"), columns);
  }

  private static Column called(UserDefinedFunction function, Column[] columns) {
    return function.apply(scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(columns));
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
