import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.shims.ShimLoader;

/**
 * A Hive metastore on a port of this machine: java -cp "pyspark/jars/*" HiveMetastoreServer.java PORT NAME=VALUE...
 *
 * The settings are Hive's own. Hive's main class is not used: it configures logging that needs one jar more than PySpark has, and leaves a
 * new Derby database without the tables that locks are kept in.
 */
public final class HiveMetastoreServer {
  public static void main(String[] arguments) throws Throwable {
    HiveConf configuration = new HiveConf();
    for (int index = 1; index < arguments.length; index++) {
      String[] setting = arguments[index].split("=", 2);
      configuration.set(setting[0], setting[1]);
    }
    TxnDbUtil.prepDb(configuration);
    HiveMetaStore.startMetaStore(Integer.parseInt(arguments[0]), ShimLoader.getHadoopThriftAuthBridge(), configuration);
  }
}
