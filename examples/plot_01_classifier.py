"""
First classifier
================

text
"""
print(1)
