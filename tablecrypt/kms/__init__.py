"""Key management services: the protocol, one client for each service, and how each is asked."""
