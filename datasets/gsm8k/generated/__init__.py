"""Generated word problems with worked solutions."""
