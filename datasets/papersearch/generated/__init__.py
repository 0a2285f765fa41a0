"""The generated literature and its queries."""
