"""HelpDesk: serve a scripted customer under a drawn rule book."""
