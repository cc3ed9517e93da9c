"""The service: `iknow serve`, or `create_app` in a program of your own."""
