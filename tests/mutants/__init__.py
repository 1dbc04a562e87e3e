"""Each safety rule is removed from the code in turn: a test must fail, or nothing protects the rule."""
