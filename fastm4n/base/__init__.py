"""Foundations: arrays in files, atomic writes, checks of arguments, schemes of tags, types."""
