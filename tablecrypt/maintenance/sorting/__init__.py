"""Orders in which compaction writes rows."""
