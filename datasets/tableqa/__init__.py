"""Questions over tables: released rows and generated ones."""
