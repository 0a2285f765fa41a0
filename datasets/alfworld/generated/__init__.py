"""Generated houses: scenes, rooms, and the tasks in them."""
