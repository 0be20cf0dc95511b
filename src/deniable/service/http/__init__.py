"""The HTTP service: `create_app(service)` is one ASGI application with every route on one port."""
