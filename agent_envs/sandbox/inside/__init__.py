"""What runs in the sandbox's own processes: zygote, lanes and children. It imports the standard library alone."""
