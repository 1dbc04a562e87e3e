"""Foreign clients read our registrations, on a server that ends with the tests of this package."""
