"""Documents that people sign and file: facts of the chain, in words, as HTML, Markdown and PDF."""
