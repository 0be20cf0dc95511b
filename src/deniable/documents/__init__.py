"""Documents for signature and filing: facts from the chain as HTML, Markdown and PDF."""
