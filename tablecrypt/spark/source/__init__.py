"""format("tablecrypt"): encrypted tables as a Spark data source, for spark.read, df.write, readStream, writeStream and SQL.

register(spark) ──▶ properties of catalogs, encrypted for the driver's JVM
java/EncryptedSource ──▶ opens the catalog in the planner's process, as SQL does ──▶ load_source: a table of the connector
"""
