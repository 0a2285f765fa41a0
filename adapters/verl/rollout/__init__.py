"""Episodes inside verl: the agent loop, and generation on a CPU."""
