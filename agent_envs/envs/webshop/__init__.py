"""WebShop: find and buy what an instruction asks for."""
