"""`python -m tablecrypt.spark.sql`: the planner. Spark's driver starts it, see java/PlannerProcess.java."""

import gc

# What imports make stays, so looking for garbage among it takes a tenth of the start and finds nothing, then and later.
gc.disable()

from tablecrypt.spark.sql.process import main  # noqa: E402

gc.freeze()
gc.enable()

main()
