"""A server under load: what is asked, how it is sent, what came back, how it is shown."""
