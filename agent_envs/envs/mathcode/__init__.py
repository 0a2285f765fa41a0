"""Mathematics with programs: ReTool's and ToRA's forms, and native calls."""
