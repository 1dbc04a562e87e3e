"""The files that usual changes must touch: each change is really made in a copy, and tried there."""
