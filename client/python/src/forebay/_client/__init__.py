"""The client of a service: connections, calls, streams and what they return."""
