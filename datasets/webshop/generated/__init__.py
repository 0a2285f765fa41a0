"""The generated shop: products, wishes, and the words for them."""
