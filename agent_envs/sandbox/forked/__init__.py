"""The rung "forked": forks of a prepared CPython behind the Linux kernel's walls."""
