"""Reading through the SQL catalog: plans of scans, filters, groups of files, aggregates from manifests, and files that Python reads."""
