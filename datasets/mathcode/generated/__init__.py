"""Generated problems that take a program: number theory, counting, simulation, systems, dates, probability."""
