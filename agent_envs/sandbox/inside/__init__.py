"""What runs in the sandbox's own processes: zygote and children. It imports the standard library alone."""
