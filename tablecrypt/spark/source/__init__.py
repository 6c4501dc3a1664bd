"""format("tablecrypt"): encrypted tables as a Spark data source, for spark.read, df.write, readStream, writeStream and SQL.

    register(spark) ──▶ Spark keeps the pickled class ──▶ planner processes on the driver's machine load the table, plan and commit
                                                      ──▶ executors read and write with encrypted tasks, as read_table and write_table do

Spark runs a Python data source's planning and committing in Python processes of their own beside the JVM, not in the program that called
`register`. They need this package and the catalog's configuration; no key, and no option's value, is in what Spark carries to executors
but what options.py lets through.
"""
