"""Encrypted tables through Spark's own Parquet reader and writer, in the JVM: classic Spark with Py4J.

    read    driver     Python plans and opens the files' keys ──encrypted──▶ endpoint in the driver's JVM
            executor   Spark's vectorised reader ── "key of this file?" ──▶ endpoint, over Spark's RPC; deletes by position, the same way
    write   executor   "where to?" ──▶ coordinator in the driver's JVM ──▶ Python
            executor   Spark's writer, under a key made there ──encrypted──▶ Python

The Java sources in `java/` are compiled by the Janino compiler that Spark contains: when the wheel is built, or once for each user and
release of Spark. It supports neither lambdas nor inference of type arguments, hence the old-fashioned Java. Executors get a jar, even those
that start later.

No secret is in an option, a plan, a closure or the event log. Keys of files to read travel in Spark's RPC messages: in the clear unless
spark.authenticate and spark.network.crypto.enabled are on. Keys of written files travel encrypted.
"""
