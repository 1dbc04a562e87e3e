"""Foreign clients read what we register, on a server that ends with the tests of this package."""
