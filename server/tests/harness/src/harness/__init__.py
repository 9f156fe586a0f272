"""Servers, peers, faults and oracles shared by the test suites and the benches."""
