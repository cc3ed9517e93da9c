"""A model that nobody here trained: magika tells file types, and iknow what it may be believed on.

`collecting` finds files whose type is known, by `naming` and `parsing`; `onnx` asks magika,
`splitting` deals projects to evidence, validation and test, `spoiling` makes files as they should
not be, `methods` judge the answers, `measuring` counts, and `table` writes the tables of the page.
"""
