package tablecrypt.jvm;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEnv;

/**
 * The Spark environment of this process, driver or executor.
 *
 * To compile a call, Janino reads the signatures of all methods of the class. One of SparkEnv in Spark 4.3 names a class that PySpark's jars
 * lack. A method handle looks up one method alone.
 */
class SparkProcess {
  static RpcEnv rpcEnv() {
    return (RpcEnv) ofEnvironment("rpcEnv", RpcEnv.class);
  }

  static SparkConf conf() {
    return (SparkConf) ofEnvironment("conf", SparkConf.class);
  }

  /** Whether this is the driver's process, where tasks of local mode run too. */
  static boolean isDriver() {
    return "driver".equals(ofEnvironment("executorId", String.class));
  }

  private static Object ofEnvironment(String method, Class type) {
    try {
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      MethodHandle get = lookup.findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class));
      Object environment = get.invokeWithArguments(new Object[0]);
      MethodHandle handle = lookup.findVirtual(SparkEnv.class, method, MethodType.methodType(type));
      return handle.invokeWithArguments(new Object[] {environment});
    } catch (Throwable error) {
      throw new IllegalStateException("SparkEnv." + method, error);
    }
  }
}
