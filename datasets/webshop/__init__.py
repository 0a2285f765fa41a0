"""WebShop's data: released files, the generated shop, and the store that both are converted to."""
