package tablecrypt.jvm;

import java.io.IOException;
import java.util.ArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import scala.PartialFunction;

/**
 * The driver's side of one write: hands on to Python what the tasks request while the Spark job runs, the locations of files.
 *
 * Only while this endpoint is open can a task put a file anywhere or finish; so when it is closed, all files that there will be are known.
 */
public class WriteCoordinator implements RpcEndpoint {
  private static final String END = "";

  private final RpcEnv env;
  private final RpcEndpointRef self;
  private final LinkedBlockingQueue waiting = new LinkedBlockingQueue();

  public WriteCoordinator(String name) {
    this.env = SparkProcess.rpcEnv();
    this.self = env.setupEndpoint(name, this);
  }

  public RpcEnv rpcEnv() {
    return env;
  }

  public PartialFunction receiveAndReply(RpcCallContext call) {
    return new PendingRequest(waiting, call);
  }

  /** Wait for the next request; null when the endpoint is closed. */
  public PendingRequest next() throws InterruptedException {
    Object request = waiting.take();
    return request == END ? null : (PendingRequest) request;
  }

  public void close() {
    env.stop(self);
  }

  public void onStop() {
    ArrayList pending = new ArrayList();
    waiting.drainTo(pending);
    for (int index = 0; index < pending.size(); index++) {
      ((PendingRequest) pending.get(index)).refuse("the write has ended");
    }
    waiting.add(END);
  }

  /** Hadoop's configuration of the session, with what this Spark's Parquet writer expects to find in it. */
  static Configuration configuration(SparkSession session) throws IOException {
    Job prepared = Job.getInstance(session.sessionState().newHadoopConf());
    new ParquetFileFormat().prepareWrite(session, prepared, scala.collection.immutable.Map$.MODULE$.empty(), new StructType());
    return prepared.getConfiguration();
  }
}
