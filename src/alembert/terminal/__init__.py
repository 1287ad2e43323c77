"""What people see while alembert works: notes and progress on stderr, results on stdout.

The command line and the public functions both speak through here; nothing below them does.
"""
