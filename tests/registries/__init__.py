"""What every kind of registry does, and a throw-away kind that shows how little a new one needs."""
