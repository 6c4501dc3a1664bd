"""What every distributed engine has in common: keys of jobs, the messages of their tasks, and what a driver commits of them."""
