"""GSM8K: grade-school word problems, in one step or with tools."""
