"""Reports for people: sections of text, tables and charts, for the terminal, as HTML and Markdown."""
