"""The environments, one file or folder per task; made by id with `gymnasium.make`."""
