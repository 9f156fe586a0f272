"""What the benches share: data, a server to measure, and facts about the machine."""
