"""The HTTP server: OpenAI's routes over an engine that runs in a process of its own.

`run.serve` is what ``dougong serve`` calls; `app.make_app` is the application alone, over any
`ServedEngine`. Nothing here is imported with the package: FastAPI is loaded by those who serve.
"""
