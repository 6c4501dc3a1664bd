"""`python -m tablecrypt.spark.sql`: the planner. Spark's driver starts it, see java/PlannerProcess.java."""

from tablecrypt.spark.sql.process import main

main()
