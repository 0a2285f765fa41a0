"""A training run as a process: started, watched, resumed, recorded."""
