"""The forms of JSON that programs read: schemas, and the page about them, made by `python -m tools.forms`."""
