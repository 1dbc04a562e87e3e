"""The files that usual changes of the code must touch: each change is made and tested in a copy of the
repository.
"""
