"""Problems of mathematics for a policy that writes programs: generated ones and released rows."""
