"""Containers in folders of arrays on disk, and as columns of Arrow tables."""
