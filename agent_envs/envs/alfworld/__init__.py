"""ALFWorld: household tasks in a text world."""
