"""A model that nobody here trained: magika tells file types, and iknow what it may be believed on.

`files` finds files whose type is known, `network` asks magika, `sets` deals projects to evidence,
validation and test and makes files as they should not be, `methods` judge the answers, `measuring`
counts, and `table` writes the tables of the page.
"""
