"""The Spark SQL catalog: `spark.sql("SELECT … FROM prod.db.orders")` over encrypted tables.

    spark.sql ─▶ SqlCatalog, SqlTable, scans and writes (java/) ──frames over a pipe──▶ the planner: this package, in one process per driver
                          │ RPC: keys, deletes, locations                               catalogs, metadata, plans, locations, commits
                          ▼
                     executors: the classes of tablecrypt/spark/shared/java

The planner is a Python process that the driver starts: it serves PySpark, Connect servers, spark-sql, spark-shell and the Thrift server.
Executors need no right in the KMS, and a Python with this package only for files that Spark's reader does not serve:
scans/python_reads.py.
"""
