"""The public functions behind `import alembert`: plain arguments in, small result objects out.

`alembert.__init__` lists the names and loads each on first use, so that the runtime needs none of what training needs.
"""
