"""Key management services: the protocol, one client for each service, and what makes a client resilient."""
