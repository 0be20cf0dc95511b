"""Every figure once, as an Altair chart: notebook, web page, command line and paper figure share it."""
