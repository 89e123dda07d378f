"""Foundations: arrays in files, atomic writes, checks of arguments, types."""
