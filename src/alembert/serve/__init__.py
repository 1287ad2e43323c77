"""The HTTP service and its page: `alembert serve`, over the models that `alembert.load` opens.

A request goes through `protocol` (deadlines), `guards` (Host, token, size), `app` (routes), `wire` (JSON), `admission`
and `batcher` (the queue) to `models`, and its answer back to the client.
"""
